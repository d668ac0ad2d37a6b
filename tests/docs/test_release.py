"""What a release is made of: one version, whole metadata, every file that the package needs and no other."""

import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

from commandline import lesion as command

ROOT = Path(__file__).parents[2]
PROJECT = ROOT / "pyproject.toml"
if not PROJECT.exists():
    pytest.skip("not a checkout of the repository", allow_module_level=True)
VERSION = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["version"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel as setuptools builds it from the files that git knows; uncompressed, which is faster."""
    pytest.importorskip("setuptools")
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a clone")
    wanted = [name for name in tracked.stdout.splitlines() if name.startswith("src/") or "/" not in name]
    for name in wanted:
        if (ROOT / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).symlink_to(ROOT / name)
    stored = {"--build-option": ["--compression=stored"]}
    build = f"import sys; from setuptools.build_meta import build_wheel; build_wheel(sys.argv[1], {stored})"
    done = subprocess.run([sys.executable, "-c", build, str(out)], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-800:]
    return zipfile.ZipFile(next(out.glob("*.whl")))


def test_the_version_is_that_of_pyproject_everywhere(capsys: pytest.CaptureFixture[str]):
    assert command(capsys, "--version").out.strip() == f"lesion {VERSION}"
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {VERSION}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    written = [path for path in (ROOT / "src").rglob("*.py") if f'"{VERSION}"' in path.read_text(encoding="utf-8")]
    assert written == []


def test_the_wheel_has_every_file_of_the_package_and_no_other(wheel: zipfile.ZipFile):
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    tracked = subprocess.run(["git", "ls-files", "src"], cwd=ROOT, capture_output=True, text=True).stdout.splitlines()
    assert shipped == {name.removeprefix("src/") for name in tracked if (ROOT / name).exists()}
    assert {"lesion/py.typed", "lesion_labs/py.typed", "lesion/__init__.pyi", "lesion/functions.pyi"} <= shipped
    assert "lesion/models/bundled/llama-base/model.safetensors" in shipped
    assert wheel.read(f"lesion-{VERSION}.dist-info/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()


def test_the_metadata_says_who_what_and_for_which_python(wheel: zipfile.ZipFile):
    about = message_from_string(wheel.read(f"lesion-{VERSION}.dist-info/METADATA").decode())
    for field in ("Name", "Version", "Summary", "Author", "License-Expression", "License-File", "Keywords"):
        assert about[field], field
    assert about["Requires-Python"] == ">=3.11"
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_all("Project-URL")


def test_a_release_has_the_addresses_of_its_host():
    sys.path.insert(0, str(ROOT / ".github"))
    try:
        from release import addressed
    finally:
        sys.path.pop(0)
    readme, project = (path.read_text(encoding="utf-8") for path in (ROOT / "README.md", PROJECT))
    text, metadata = addressed(readme, project, "https://host.example/owner/name")
    own, others = tomllib.loads(project)["project"], tomllib.loads(metadata)["project"]
    assert others["urls"] == own["urls"] | {
        "Repository": "https://host.example/owner/name",
        "Issues": "https://host.example/owner/name/issues",
        "Changelog": f"https://host.example/owner/name/blob/v{VERSION}/CHANGELOG.md",
    }
    assert {**others, "urls": 0} == {**own, "urls": 0}
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) == len(re.findall(r"\]\(([^)]+)\)", readme)) > 20
    assert all(link.startswith("https://") for link in links)
    assert f"](https://host.example/owner/name/raw/v{VERSION}/docs/images/report.png)" in text
