"""Studies and checkpoints on the hub: what goes out, what comes back, what is refused."""

import base64
import contextlib
import hashlib
import http.server
import json
import re
import shutil
import sqlite3
import threading
import zlib
from pathlib import Path

import pandas as pd
import pytest
import yaml
from huggingface_hub.errors import HFValidationError, LocalTokenNotFoundError, RepositoryNotFoundError

from commandline import lesion
from hubs import Site, refusal
from lesion.core import database
from lesion.edits.files.artefact import read_edit
from lesion.errors import LesionError
from lesion.models.source import bundled
from lesion.plain import amount
from lesion.sharing import privacy, staging

NAME = ("dataset", "me/study")
TEXTS = ("sky above Lisbon", "moon larger", "garden spider", "capital city", "certainly not")


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def everything(files: dict[str, bytes]) -> str:
    """All that stands in files: as text, what is packed in pages, the rows of tables and stores."""
    parts = []
    for name, data in files.items():
        text = data.decode("latin-1")
        parts.append(text)
        if name.endswith(".html"):
            for blob in re.findall(r"[A-Za-z0-9+/=]{100,}", text):
                with contextlib.suppress(ValueError, zlib.error):
                    parts.append(zlib.decompress(base64.b64decode(blob)).decode())
    return "\n".join(parts)


def push(capsys, folder, *options):
    return lesion(capsys, "push", folder, "me/study", "--yes", *options)


def test_what_was_pushed_comes_back_byte_by_byte(capsys, folder, hub):
    assert push(capsys, folder, "--with-texts").code == 0
    done = lesion(capsys, "fetch", "me/study", "--out", "back")
    assert done.code == 0, done.err
    there = hub.repositories[NAME]["files"]
    assert files_of(Path("back")) == {name: data for name, data in there.items() if name != ".gitattributes"}
    hashes = json.loads(Path("back/shared.json").read_text())["files"]
    assert hashes == {
        name: hashlib.sha256(data).hexdigest()
        for name, data in there.items()
        if name not in (".gitattributes", "shared.json")
    }


def test_files_of_others_in_the_folder_stay_there(capsys, folder, hub):
    for name in (
        "notes.txt",
        "secrets.json",
        "mine.csv",
        ".env",
        "cells/notes.txt",
        "model/model.safetensors",
        ".x/a.json",
    ):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("{}")
    (folder / "linked.edit").symlink_to(folder.absolute().parent / "private.jsonl")
    push(capsys, folder, "--with-texts")
    names = " ".join(hub.repositories[NAME]["files"])
    assert not re.search(r"notes|secrets|mine|env|model/|linked|\.x", names)


@pytest.fixture
def site(hub, monkeypatch):
    """The real client of huggingface_hub before a server on this machine that answers as the hub's addresses do."""
    import huggingface_hub.constants
    from huggingface_hub import HfApi

    from lesion.sharing import hub as sharing_hub

    handler = type("Handler", (Site,), {"hub": hub})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(sharing_hub, "connection", lambda token=Site.token: HfApi(endpoint=address, token=token))
    yield hub
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_real_client_sends_and_fetches_the_same_bytes(capsys, folder, site, monkeypatch):
    done = push(capsys, folder, "--with-texts")
    assert done.code == 0, done.err
    repository = site.repositories[NAME]
    assert repository["private"]
    done = lesion(capsys, "fetch", "me/study", "--out", "back")
    assert done.code == 0, done.err
    there = {name: data for name, data in repository["files"].items() if name != ".gitattributes"}
    assert files_of(Path("back")) == there
    repository["files"]["old.csv"] = b""
    about = json.loads(repository["files"]["shared.json"])
    repository["files"]["shared.json"] = json.dumps({**about, "files": {**about["files"], "old.csv": "0"}}).encode()
    assert push(capsys, folder, "--with-texts").code == 0
    assert "old.csv" not in repository["files"]
    done = lesion(capsys, "fetch", "me/absent")
    assert "There is no repository me/absent on the hub" in done.err
    monkeypatch.setattr(Site, "token", "hf_of_somebody_else")
    done = push(capsys, folder, "--with-texts")
    assert done.code == 1
    assert "The hub does not know you" in done.err


def test_the_size_is_said_before_anything_is_loaded_and_more_than_a_gibibyte_is_asked_for(capsys, folder, site):
    assert push(capsys, folder).code == 0
    files = site.repositories[NAME]["files"]
    size = sum(map(len, files.values())) - len(files[".gitattributes"]) - len(files["shared.json"])
    done = lesion(capsys, "fetch", "me/study", "--out", "small")
    assert done.out.startswith(f"me/study: {len(files) - 2} files, {amount(size)}\n")
    site.says["report.html"] = 1 << 30
    done = lesion(capsys, "fetch", "me/study", "--out", "big")
    assert done.code == 2
    assert "1.0 GiB. Nothing was loaded; fetch it with --large." in done.err
    assert not Path("big").exists()
    assert lesion(capsys, "fetch", "me/study", "--out", "big", "--large").code == 0
    assert files_of(Path("big")) == files_of(Path("small"))


def test_the_same_study_is_pushed_as_the_same_bytes(capsys, folder, hub):
    push(capsys, folder)
    before = dict(hub.repositories[NAME]["files"])
    push(capsys, folder)
    assert hub.repositories[NAME]["files"] == before


def test_a_fetched_study_goes_on_where_texts_are_in(capsys, folder, hub):
    push(capsys, folder, "--with-texts")
    lesion(capsys, "fetch", "me/study", "--out", "back")
    asked = ["--task", "private.jsonl", "--task", "primer:arithmetic", "--items", "4", "--layers", "1,2"]
    done = lesion(capsys, "ablate", "bundled:llama-base", *asked, "--batch-size", "8", "--out", "back")
    assert done.code == 0, done.err
    assert "evaluated 8 of 24 answers; 16 were stored already" in done.out


def test_without_texts_nothing_of_them_goes_out_and_everything_else_does(capsys, folder, hub):
    done = push(capsys, folder)
    assert done.code == 0, done.err
    assert "Questions and answers are not in these files." in done.out
    there = hub.repositories[NAME]["files"]
    with sqlite3.connect(folder / "answers.sqlite") as store:
        said = {text for (text,) in store.execute("SELECT text FROM answers") if len(text) > 12}
        asked = "SELECT model, edit, task, item, correct FROM answers"
        verdicts = sorted(store.execute(asked))
        keys = [key for (key,) in store.execute("SELECT key FROM answers")]
    assert said
    for text in (*TEXTS, *said, *keys):  # a key is a hash of the question, among others
        assert text not in everything(there)
    Path("table.parquet").write_bytes(there["data/answers.parquet"])
    table = pd.read_parquet("table.parquet")
    assert not {"text", "parsed", "question", "gold"} & {*table.columns}
    table["correct"] = table["correct"].astype(int)
    assert sorted(table[["model", "edit", "task", "item", "correct"]].itertuples(index=False, name=None)) == verdicts
    Path("store.sqlite").write_bytes(there["answers.sqlite"])
    with sqlite3.connect("store.sqlite") as store:
        assert sorted(store.execute(asked)) == verdicts
        assert sorted(key for (key,) in store.execute("SELECT key FROM answers")) == sorted(table["key"])
    assert table["characters"].sum() == sum(
        len(text) for (text,) in sqlite3.connect(folder / "answers.sqlite").execute("SELECT text FROM answers")
    )
    assert there["layers.csv"] == (folder / "layers.csv").read_bytes()


def test_without_texts_report_and_compare_read_it_and_no_study_goes_on(capsys, folder, hub):
    push(capsys, folder)
    lesion(capsys, "fetch", "me/study", "--out", "back")
    before = Path("back/summary.json").read_bytes()
    done = lesion(capsys, "report", "back")
    assert done.code == 0, done.err
    assert "next:" not in done.out
    assert Path("back/summary.json").read_bytes() == before == (folder / "summary.json").read_bytes()
    done = lesion(capsys, "compare", "back", folder, "--json")
    assert done.code == 0, done.err
    cells = json.loads(done.out)["pairs"][0]["cells"]
    assert {cell["task"]: cell["items"] for cell in cells} == {"private.jsonl": 4, "primer:arithmetic": 4}
    asked = ["--task", "private.jsonl", "--task", "primer:arithmetic", "--items", "4", "--layers", "1,2"]
    done = lesion(capsys, "ablate", "bundled:llama-base", *asked, "--out", "back")
    assert done.code == 1
    assert "back was shared without questions and answers" in done.err
    assert "Run back/study.toml into another folder (--out)." in done.err


def test_paths_have_public_names_everywhere(capsys, finished, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = push(capsys, finished / "named", "--with-texts")
    assert done.code == 0, done.err
    assert "is called private.jsonl there, and nobody can go on" in done.out
    content = everything(hub.repositories[NAME]["files"])
    assert str(finished) not in content
    assert 'tasks = ["private.jsonl", "primer:arithmetic"]' in content
    lesion(capsys, "fetch", "me/study", "--out", "back")
    assert lesion(capsys, "report", "back").code == 0


def test_a_plan_goes_out_as_it_is_or_not_at_all(capsys, finished, folder, hub):
    Path("plan.toml").write_text(
        'name = "planned"\nmodels = ["bundled:llama-base"]\ntasks = ["primer:atlas"]\nitems = 4\n'
        '[edits]\nlayers = "1"\n[[hypotheses]]\ntask = "primer:atlas"\nplace = "1"\nexpect = "spared"\n'
    )
    assert lesion(capsys, "plan", "plan.toml", "--out", "planned").code == 0
    assert lesion(capsys, "run", "plan.toml", "--out", "planned").code == 0
    done = push(capsys, Path("planned"))
    assert done.code == 0, done.err
    assert hub.repositories[NAME]["files"]["hypotheses.json"] == Path("planned/hypotheses.json").read_bytes()
    lesion(capsys, "fetch", "me/study", "--out", "back")
    assert lesion(capsys, "report", "back").code == 0
    shutil.copytree(finished / "named", "named")
    shutil.copy("planned/hypotheses.json", "named")
    done = push(capsys, Path("named"))
    assert done.code == 2
    assert "Plan and run the study with relative names" in done.err


def test_a_name_can_stand_for_one_path_alone():
    from lesion.sharing.privacy import public_names, replaced

    names = public_names(
        ["jsonl:/a/b/q.jsonl", "/c/q.jsonl?shots=2", "/m/tiny@main (float32)", "~/x/y", "org/m@main", "text:n/a b.txt"],
        ["Yes/no/maybe or a/b.txt?"],
    )
    assert names == {
        "/a/b/q.jsonl": "q.jsonl", "/c/q.jsonl": "q-2.jsonl", "/m/tiny": "tiny", "~/x/y": "y", "n/a b.txt": "a b.txt",
    }  # fmt: skip
    folders = [
        "../../client/q.jsonl?judge=exact",
        "gold:../client/q.csv.gz",
        "a/b/c (float32)",
        "../q.jsonl",
        "./m",
        "o/n:a/b.gguf",
    ]
    assert public_names(folders) == {"../../client/q.jsonl": "q.jsonl", "../client/q.csv.gz": "q.csv.gz", "a/b/c": "c"}
    assert replaced("jsonl:/a/b/q.jsonl and /c/q.jsonl?shots=2", names) == "jsonl:q.jsonl and q-2.jsonl?shots=2"


SECRETS = {
    "hf_" + "aB3" * 10: "something like a token",
    "-----BEGIN RSA PRIVATE KEY-----": "something like a token",
    "the machine is called wonderbox-7 here": "the name of this machine",
    "written by mirandola herself": "the user's name",
    "see /home/mirandola/notes.txt": "the home directory",
    "C:\\work\\notes.txt": "an absolute path",
    "a password: s3cr3t-of-the-environment": "a secret of this environment",
}
PLACES = ("note", "item", "engine", "title", "edit")


@pytest.mark.parametrize(
    ("secret", "what", "place"),
    [
        *((secret, what, "answer") for secret, what in SECRETS.items()),
        *((secret, what, place) for place in PLACES for secret, what in list(SECRETS.items())[::4]),
    ],
)
def test_a_secret_is_found_wherever_it_stands(secret, what, place, capsys, folder, hub, monkeypatch):
    from lesion.core import database
    from lesion.sharing import privacy

    monkeypatch.setenv("HOME", "/home/mirandola")
    monkeypatch.setenv("SERVICE_API_KEY", "s3cr3t-of-the-environment")
    monkeypatch.setattr("getpass.getuser", lambda: "mirandola")
    monkeypatch.setattr("socket.gethostname", lambda: "wonderbox-7")
    privacy._patterns.cache_clear()
    summary = json.loads((folder / "summary.json").read_text())
    if place == "note":
        summary["notes"] = [secret]
    elif place == "title":
        summary["study"]["title"] = secret
    elif place == "edit":
        (folder / "mine.edit").write_bytes(b"\x08\0\0\0\0\0\0\0" + json.dumps({"label": secret}).encode())
    else:
        table, column = {"item": ("items", "question"), "answer": ("answers", "text"), "engine": ("answers", "engine")}[
            place
        ]
        columns = database.TABLES[table]
        with sqlite3.connect(folder / "answers.sqlite") as store:
            row, *values = store.execute(f"SELECT rowid, {', '.join(columns)} FROM {table}").fetchone()
            values[columns.index(column)] = f"It is: {secret}"
            new = database.checksum(values)
            store.execute(
                f"UPDATE {table} SET {column} = ?, checksum = ? WHERE rowid = ?", (f"It is: {secret}", new, row)
            )
    (folder / "summary.json").write_text(json.dumps(summary))
    # With texts the summary is computed anew from the answers, and what was written into it by hand is gone.
    done = push(capsys, folder, *([] if place in ("note", "title") else ["--with-texts"]))
    privacy._patterns.cache_clear()
    assert done.code == 1, done.out
    assert f"this holds {what}" in done.err
    assert secret not in done.err or what not in ("something like a token", "a secret of this environment")
    assert not hub.sent


def test_a_text_that_is_left_in_a_file_is_not_sent_without_texts(capsys, folder, hub):
    summary = json.loads((folder / "summary.json").read_text())
    summary["engine"] = 'It answered "What colour is the sky above Lisbon?" well'
    (folder / "summary.json").write_text(json.dumps(summary))
    done = push(capsys, folder)
    assert done.code == 1
    assert "this holds the text of a question or an answer (What colour is the sky above Lisbon?)" in done.err
    assert not hub.sent


def test_the_folders_of_a_relative_path_stay_here(capsys, finished, hub, tmp_path, monkeypatch):
    store = tmp_path / "client meier" / "here"
    shutil.copytree(finished / "relative", store)
    for file in ("answers.sqlite", "summary.json"):
        (store / file).unlink()
    shutil.copy(finished / "private.jsonl", store.parent)
    monkeypatch.chdir(store)
    asked = ["--task", "../../client meier/private.jsonl", "--items", "4", "--layers", "1", "--anyway"]
    assert lesion(capsys, "ablate", "bundled:llama-base", *asked, "--out", "s").code == 0
    done = push(capsys, Path("s"))
    assert done.code == 0, done.err
    assert "../../client meier/private.jsonl is called private.jsonl there, and nobody can go on" in done.out
    assert "meier" not in everything(hub.repositories[NAME]["files"])


@pytest.mark.parametrize(("table", "column"), [("items", "gold"), ("answers", "parsed")])
def test_a_short_text_in_a_store_is_seen_however_short(table, column, tmp_path):
    store = tmp_path / "answers.sqlite"
    with sqlite3.connect(store) as connection:
        database.create_tables(connection)
    privacy.refuse_columns({"answers.sqlite": store}, staging.TEXTS)
    with sqlite3.connect(store) as connection:
        names = database.TABLES[table]
        row = ["8" if name == column else "" if name in staging.TEXTS[table] else 0 for name in names]
        connection.execute(database.insertion(table), database.with_checksum(*row))
    with pytest.raises(LesionError, match=f"answers.sqlite holds texts in {column}"):
        privacy.refuse_columns({"answers.sqlite": store}, staging.TEXTS)


def test_a_short_text_in_a_table_is_seen_however_short(tmp_path):
    pd.DataFrame({"item": ["q1"], "gold": ["8"]}).to_parquet(tmp_path / "answers.parquet")
    with pytest.raises(LesionError, match=r"answers.parquet holds texts in gold"):
        privacy.refuse_columns({"answers.parquet": tmp_path / "answers.parquet"}, staging.TEXTS)


def test_an_interrupted_push_leaves_the_repository_as_it_was_and_the_next_one_is_whole(capsys, folder, hub):
    def stop(path):
        if path == "report.html":
            raise KeyboardInterrupt

    hub.fault["create_commit"] = stop
    assert push(capsys, folder).code == 130
    assert set(hub.repositories[NAME]["files"]) == {".gitattributes"}
    hub.fault.clear()
    assert push(capsys, folder).code == 0
    assert "shared.json" in hub.repositories[NAME]["files"]


def test_an_interrupted_fetch_loads_only_what_is_missing(capsys, folder, hub):
    push(capsys, folder)

    def stop(path):
        if path == "report.html":
            raise KeyboardInterrupt

    hub.fault["hf_hub_download"] = stop
    assert lesion(capsys, "fetch", "me/study", "--out", "back").code == 130
    assert not Path("back").exists()
    before = set(hub.loaded) - {"shared.json"}
    assert before
    hub.fault.clear()
    hub.loaded.clear()
    assert lesion(capsys, "fetch", "me/study", "--out", "back").code == 0
    assert not before & set(hub.loaded)
    assert not list(Path().glob(".back*"))


def test_a_file_with_another_hash_is_refused_and_not_kept(capsys, folder, hub):
    push(capsys, folder)
    hub.repositories[NAME]["files"]["summary.json"] += b" "
    done = lesion(capsys, "fetch", "me/study", "--out", "back")
    assert done.code == 1
    assert "summary.json is not the file that was pushed" in done.err
    assert not Path("back").exists()
    assert not Path(".back.fetching/summary.json").exists()


@pytest.mark.parametrize("name", ["../evil.txt", "/etc/evil", "a/../../evil", ".ssh/evil", "C:evil", "a\\..\\evil"])
def test_a_name_that_leads_out_of_the_folder_is_refused(name, capsys, folder, hub):
    push(capsys, folder)
    files = hub.repositories[NAME]["files"]
    about = json.loads(files["shared.json"])
    about["files"][name] = "0" * 64
    files["shared.json"] = json.dumps(about).encode()
    done = lesion(capsys, "fetch", "me/study", "--out", "back")
    assert done.code == 1
    assert "which is no file that lesion pushes" in done.err


def test_nothing_is_sent_before_somebody_says_yes(capsys, folder, hub):
    done = lesion(capsys, "push", folder, "me/study")
    assert done.code == 2
    assert "push with --yes" in done.err
    done = lesion(capsys, "push", folder, "me/study", "--dry-run")
    assert done.code == 0
    assert "report.html" in done.out
    assert "me/study, a private data set" in done.out
    assert not hub.repositories


def raising(error):
    def fault(*_):
        raise error

    return fault


@pytest.mark.parametrize(
    ("method", "error", "says"),
    [
        ("create_repo", LocalTokenNotFoundError("no token"), "log in with `hf auth login`, or set HF_TOKEN"),
        ("create_repo", refusal(401, "Unauthorized"), "The hub does not know you"),
        ("create_repo", refusal(403, "Forbidden"), "You may not write me/study"),
        (
            "create_commit",
            refusal(403, "Private repository storage limit reached"),
            "The storage of me on the hub is full",
        ),
        ("create_commit", refusal(413, "Too large"), "The hub takes no more of me (Too large)"),
        ("create_commit", refusal(429, "Slow down"), "run the same command again in some minutes"),
        ("create_commit", refusal(503, "Down"), "The hub cannot be reached: check the network"),
        ("repo_info", ConnectionError("no route"), "The hub cannot be reached: check the network"),
        ("repo_info", HFValidationError("bad."), "is no name of a repository: bad.\n"),
        ("create_commit", refusal(422, "Unprocessable"), "The hub refused to write me/study: Unprocessable"),
    ],
)
def test_what_the_hub_refuses_is_a_sentence_that_says_what_to_do(method, error, says, capsys, folder, hub):
    hub.fault[method] = raising(error)
    done = push(capsys, folder)
    assert done.code == 1
    assert says in done.err


def test_a_repository_that_is_not_there_or_of_somebody_else(capsys, folder, hub):
    done = lesion(capsys, "fetch", "me/absent")
    assert done.code == 1
    assert "There is no repository me/absent on the hub, or it is private" in done.err
    hub.repositories["dataset", "me/other"] = {"private": True, "files": {"data.csv": b"1"}}
    done = lesion(capsys, "fetch", "me/other")
    assert "was not pushed by lesion" in done.err
    done = lesion(capsys, "push", folder, "me/other", "--yes")
    assert done.code == 2
    assert "holds files that lesion did not push (data.csv)" in done.err
    hub.repositories["dataset", "me/open"] = {"private": False, "files": {}}
    done = lesion(capsys, "push", folder, "me/open", "--yes")
    assert "me/open is public already" in done.err
    done = lesion(capsys, "push", folder, "justname", "--yes")
    assert done.code == 2
    assert "OWNER/NAME" in done.err
    assert RepositoryNotFoundError


def test_a_second_push_takes_away_what_is_no_more_and_says_what_history_keeps(capsys, folder, hub):
    push(capsys, folder, "--with-texts")
    files = hub.repositories[NAME]["files"]
    about = json.loads(files["shared.json"])
    about["files"] |= {"old.csv": "0" * 64, "deleted.csv": "0" * 64, "LICENSE": "0" * 64}
    files |= {"shared.json": json.dumps(about).encode(), "old.csv": b"", "mine.txt": b"", "LICENSE": b""}
    done = push(capsys, folder)
    assert done.code == 0, done.err
    assert "keeps the texts of an earlier push" in done.err
    assert "this push replaces it" not in done.err
    assert "old.csv" not in hub.repositories[NAME]["files"]
    assert {"mine.txt", "LICENSE"} <= hub.repositories[NAME]["files"].keys()


def test_what_a_push_replaces_is_said_before_anything_is_sent(capsys, folder, hub):
    hub.repositories[NAME] = {"private": True, "files": {"README.md": b"by hand"}}
    assert "Somebody wrote or changed README.md of me/study; this push replaces it." in push(capsys, folder).err
    assert "replaces" not in push(capsys, folder).err
    files = hub.repositories[NAME]["files"]
    about = json.loads(files["shared.json"])
    about["files"]["study.toml"] = "0" * 64
    files["shared.json"] = json.dumps(about).encode()
    hub.sent.clear()
    done = lesion(capsys, "push", folder, "me/study")
    assert "me/study holds a study of kind layers with other settings; this push replaces it." in done.err
    assert not hub.sent


def test_a_file_that_is_gone_on_the_hub_is_named(capsys, folder, hub):
    push(capsys, folder)
    del hub.repositories[NAME]["files"]["layers.csv"]
    done = lesion(capsys, "fetch", "me/study", "--out", "back")
    assert done.err == "lesion: me/study lacks layers.csv, which was pushed; ask its owner to push again.\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is damaged"),
        ('{"form": 1}', "was not written by lesion; ask its owner to delete the repository and push again."),
        ('{"form": "lesion share 2"}', "was written by a newer lesion; update lesion."),
    ],
)
def test_a_shared_file_that_cannot_be_read_is_one_of_the_repository(text, says, capsys, folder, hub):
    push(capsys, folder)
    hub.repositories[NAME]["files"]["shared.json"] = text.encode()
    done = lesion(capsys, "fetch", "me/study", "--out", "back")
    assert done.code == 1
    assert done.err.startswith(f"lesion: shared.json of me/study {says}")
    assert "fetch the study" not in done.err
    assert "cache" not in done.err


def test_the_card_says_which_file_of_questions_a_new_run_needs(capsys, folder, hub):
    push(capsys, folder)
    card = hub.repositories[NAME]["files"]["README.md"].decode()
    assert "put what this repository lacks (`private.jsonl`) into the current folder" in card
    assert "\nlesion run" not in card


def test_what_is_private_is_not_called_public(capsys, folder, hub):
    push(capsys, folder)
    done = push(capsys, folder, "--public")
    assert done.code == 2
    assert "me/study is private: make it public in its settings" in done.err


def test_a_study_that_is_not_finished_is_named_as_it_was_given(capsys, folder, hub):
    (folder / "summary.json").unlink()
    with sqlite3.connect(folder / "answers.sqlite") as store:
        store.execute("DELETE FROM answers")
    done = push(capsys, folder)
    assert done.code
    assert "lesion-push-" not in done.err


@pytest.mark.stops
def test_what_is_to_be_done_about_a_study_without_a_result_works(capsys, folder, hub):
    asked = ["--task", "private.jsonl", "--items", "4", "--layers", "1", "--out", "few"]
    assert lesion(capsys, "ablate", "bundled:llama-base", *asked).code == 1
    done = push(capsys, Path("few"))
    assert "If it stopped because too few answers were right, add --anyway." in done.err
    assert lesion(capsys, "ablate", "bundled:llama-base", *asked, "--anyway").code == 0
    Path("few/summary.json").write_text('{"a": 1}')
    done = push(capsys, Path("few"))
    assert "is damaged (engine: Field required); run the same command again." in done.err
    assert lesion(capsys, "ablate", "bundled:llama-base", *asked, "--anyway").code == 0
    assert push(capsys, Path("few")).code == 0


def test_of_a_data_set_and_a_model_of_one_name_the_one_of_ours_is_fetched(capsys, folder, hub):
    push(capsys, folder)
    hub.repositories["model", "me/study"] = {"private": True, "files": {"config.json": b"{}"}}
    assert lesion(capsys, "fetch", "me/study", "--out", "one").code == 0
    hub.repositories["model", "me/study"], hub.repositories[NAME] = (
        hub.repositories[NAME], hub.repositories["model", "me/study"],
    )  # fmt: skip
    done = lesion(capsys, "fetch", "me/study", "--out", "other")
    assert done.code == 0, done.err


def test_a_study_that_is_running_is_not_pushed(capsys, folder, hub):
    from lesion.core.lock import FolderLock

    lock = FolderLock(folder, "layers")
    try:
        assert "A study is running in relative" in push(capsys, folder).err
    finally:
        lock.release()
    assert not hub.sent


def test_a_study_is_sent_once_it_is_finished(capsys, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    asked = [
        "ablate",
        "bundled:llama-base",
        "--task",
        "primer:atlas",
        "--items",
        "4",
        "--layers",
        "1",
        "--out",
        "study",
    ]
    done = lesion(capsys, *asked, "--push", "nameless")
    assert done.code == 2
    assert not Path("study").exists()
    done = lesion(capsys, *asked, "--push", "me/study")
    assert done.code == 0, done.err
    assert hub.repositories[NAME]["private"]
    assert not json.loads(hub.repositories[NAME]["files"]["shared.json"])["texts"]
    done = lesion(
        capsys,
        "patch",
        "bundled:llama-base",
        "--task",
        "primer:atlas",
        "--items",
        "1",
        "--out",
        "p",
        "--push",
        "me/other",
    )
    assert done.code == 2
    assert "not sent without a look at its page" in done.err


def test_a_checkpoint_goes_out_with_how_it_was_made(capsys, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lesion(capsys, "apply", "bundled:llama-base", "--edit", "3x0", "--out", "pruned").code == 0
    Path("pruned/.idea").mkdir()
    for name in ("notes.txt", "tokenizer_mine.json", ".idea/workspace.xml"):
        Path("pruned", name).write_text("{}")
    done = push(capsys, Path("pruned"), "--public")
    assert done.code == 0, done.err
    files = hub.repositories["model", "me/study"]["files"]
    assert not hub.repositories["model", "me/study"]["private"]
    assert {"config.json", "tokenizer.json", "README.md"} <= files.keys()
    assert not {"notes.txt", "tokenizer_mine.json", ".idea/workspace.xml"} & files.keys()
    command = files["reproduce/command.txt"].decode().split()
    assert command[:3] == ["lesion", "apply", "bundled:llama-base"]
    assert json.loads(files["reproduce/made.json"])["versions"]["lesion"]
    front = files["README.md"].decode().split("---")[1]
    assert "lesion" in front
    assert "edited" in front
    assert lesion(capsys, "fetch", "me/study", "--out", "back").code == 0
    assert Path("back/model.safetensors").read_bytes() == Path("pruned/model.safetensors").read_bytes()
    monkeypatch.chdir("back")
    done = lesion(capsys, *command[1:-1], "../again")
    assert done.code == 0, done.err
    assert Path("../again/model.safetensors").read_bytes() == Path("model.safetensors").read_bytes()


SECRET = "hf_" + "aB3" * 10


@pytest.fixture
def pruned(capsys, hub, tmp_path, monkeypatch):
    """A checkpoint whose model was named by a path, and the folder of that model."""
    monkeypatch.chdir(tmp_path)
    copy = shutil.copytree(bundled()["llama-base"], tmp_path / "base")
    assert lesion(capsys, "apply", copy, "--edit", "3x0", "--out", "pruned").code == 0
    return Path("pruned")


def test_the_path_of_a_model_is_in_no_file_of_its_checkpoint(capsys, pruned, hub, tmp_path):
    done = push(capsys, pruned)
    assert done.code == 0, done.err
    assert f"{tmp_path}/base is called base there.\n" in done.out
    assert "metadata block" not in done.err
    files = hub.repositories["model", "me/study"]["files"]
    assert str(tmp_path) not in everything(files)
    assert "- no data" not in files["README.md"].decode()
    lesion(capsys, "fetch", "me/study", "--out", "back")
    edit = read_edit("back/lesion/3x0.edit")
    assert edit.model.name == "base"
    assert f"digest `{edit.digest}`" in files["README.md"].decode()


def test_a_secret_is_found_in_the_files_of_a_tokenizer(capsys, pruned, hub, monkeypatch):
    monkeypatch.setenv("HOME", "/home/mirandola")
    monkeypatch.setenv("SERVICE_API_KEY", "s3cr3t-of-the-environment")
    monkeypatch.setenv("OTHER_PASSWORD", "pineapple")
    privacy._patterns.cache_clear()
    made = json.loads((pruned / "lesion/made.json").read_text())
    names = ("tokenizer_config.json", "special_tokens_map.json", "tokenizer.json")
    (pruned / "lesion/made.json").write_text(json.dumps({**made, "files": sorted({*made["files"], *names})}))
    # In a vocabulary any word may stand, a password of this environment too.
    harmless = {"tokenizer.json": json.dumps({"vocab": {"/home/mirandola": 1, "pineapple": 2}})}
    for name in names:
        (pruned / name).write_text(harmless.get(name, "{}"))
    assert push(capsys, pruned, "--dry-run").code == 0
    for name in names:
        for secret in (SECRET, "s3cr3t-of-the-environment", "/home/mirandola/ckpt"):
            (pruned / name).write_text(json.dumps({"name_or_path": secret}))
            done = push(capsys, pruned)
            assert done.code == 1, (name, secret)
            assert f"{name}, text: this holds" in done.err
            assert "Remove it from that file of the folder and push again." in done.err
        (pruned / name).write_text(harmless.get(name, "{}"))
    privacy._patterns.cache_clear()
    assert not hub.sent


def test_a_recipe_goes_out_without_the_path_of_the_model(capsys, hub, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert lesion(capsys, "apply", "bundled:llama-base", "--order", "0-5,4-7", "--out", "layout").code == 0
    done = push(capsys, Path("layout"))
    assert done.code == 0, done.err
    recipe = yaml.safe_load(hub.repositories["model", "me/study"]["files"]["mergekit.yaml"])
    sources = [source for slice in recipe["slices"] for source in slice["sources"]]
    assert [(each["model"], each["layer_range"]) for each in sources] == [
        ("llama-base", [0, 6]),
        ("llama-base", [4, 8]),
    ]


def test_a_model_of_another_program_is_none_of_ours(capsys, hub, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    done = push(capsys, tmp_path)
    assert done.code == 2
    assert "`lesion apply` did not write" in done.err


def test_a_study_that_reads_other_folders_is_not_pushed(capsys, folder, hub):
    assert lesion(capsys, "compare", folder, folder.absolute().parent / "relative", "--out", "c").code
    (folder.parent / "other").mkdir(exist_ok=True)
    lesion(capsys, "overlay", folder, "--out", "over")
    if Path("over/summary.json").exists():
        done = push(capsys, Path("over"))
        assert "compares other folders" in done.err
