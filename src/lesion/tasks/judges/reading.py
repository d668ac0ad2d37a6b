"""Reading: where a text states its answer, where that ends, and how much of it the grammar reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lesion.tasks.judges import statements
from lesion.tasks.judges.grammar import readings
from lesion.tasks.judges.meanings import Value
from lesion.tasks.judges.notation import IDEOGRAPHS, LONGEST, plain
from lesion.tasks.judges.values import roughly_same

TAIL = 20_000
"""Characters at the end of a text in which an answer is looked for."""

_MARK = re.compile(
    r"\b(?:answer|solution)(?:\s+(?:to\s+the\s+(?:question|problem)|here))?(?:\s+is|\s+are|\s*:|\s+would\s+be|\s+equals|\s*=|\s+must\s+be)"
    r"(?:\s*:|\s+(?:therefore|thus|then|simply|just)\b)?[\s*_]*",
    re.IGNORECASE,
)
_HASHES = re.compile(r"####[ \t]*([^\n]+?)(?=####|\n|$)")
_NEXT = re.compile(
    r"(?:<\|(?:im_start|im_end|endoftext|eot_id|end_of_text|start_header_id|user|assistant|system|end)\|>"
    r"|</s>|\[/?INST\]|<end_of_turn>|<start_of_turn>)"
    r"|(?:^|\n)[ \t]*(?:[*_#>\[-]{1,4}[ \t]*)?(?:(?:next|new|another|similar|related|bonus|follow-?up)[ \t]+)?"
    r"(?:(?:question|problem|exercise|example|task|query|quiz|puzzle|prompt|instruction|input)"
    r"(?:[ \t]+statement)?[ \t]*(?:\#|no\.?|number)?[ \t]*\d*[ \t]*[*_]*[:.)\]]"
    r"|(?:question|problem|exercise|example|task)[ \t]+\#?\d+\b"
    r"|(?:Q|Human|User|Student|Instruction|Input|Teacher)[ \t]*\d*[ \t]*[*_]*[:.)](?=\s|$|[A-Z])"
    r"|\#\#\#(?!\#)[ \t]*(?:Question|Problem|Instruction|Input|Human|User|Example|Exercise|Task))"
    r"|(?<=[.!?\d\]})])\s+(?:Question|Problem|Q|Human|User|Instruction|Exercise)[ \t]*\d*:\s",
    re.IGNORECASE,
)
_ASKED_BACK = re.compile(r"[^.?!\n]{1,200}\?[\"')*_]*\s*(?:no|nope|wrong|incorrect)\b[,.!:]?[ \t]*", re.IGNORECASE)
_SUPPOSED = re.compile(
    r"\b(?:if|suppose|supposing|assume|assuming|whether|unless|imagine)\s+(?:that\s+)?(?:(?:the|our|my|your)\s+)?(?:\w+\s+)?$",
    re.IGNORECASE,
)
_UNFINISHED = re.compile(r"(?:(?<![=<>!\s])\s*[=≈]|\s[+×÷]|\\(?:approx|times|div|cdot)|\bequals)[ \t$\\()\[\]]*\s*$")
"""An end in the middle of an equation."""
_BARE_BOX = re.compile(r"(\\f?box(?:ed)?)\s*(-?\d[\d.,]*)")
_LABEL = re.compile(r"^(?:option\s+[A-J][:.)]?|\([A-J]\)|[A-J][):.])\s+(?=[-\d$\\√π])", re.IGNORECASE)
_TAGGED = re.compile(r"(?<=\S)\s*<(?:question|problem|exercise)>(?!.*</think>)", re.IGNORECASE | re.DOTALL)
_ANSWERED = re.compile(
    r"####[ \t]*\S[^\n]*|\\boxed\s*\{[^\n]*"
    r"|\banswer\s+is[^\n]*|\banswer\s*:[ \t*]*\S{1,20}[ \t]*(?=\n|$)",
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"\n[ \t]*(?:\d+[.)][ \t]*)?(?:[A-Z][^\n]*\?[ \t\"']*(?=\n|$)"
    r"|(?<=\n)(?:Compute|Find|Evaluate|Solve|Calculate|Simplify|Determine|Factor|Expand|Express)\s[^\n]*"
    r"|Part[ \t]+[2-9B]\b[^\n]*)"
)
_SENTENCE_END = re.compile(
    r"\n|(?<!\\)[.?](?:[\"'”’)*_`]*)(?=\s|$)(?!\s*(?:\d|[×*+=/<>≤≥,;)]))|[.](?=[A-Z][a-z])|!(?=\s+[A-Z])", re.MULTILINE
)
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|approx|a\.m|p\.m|sq|ft|in|cu|no|vs|resp|etc|dr|mr|mrs|ms|st|[a-z]\.[a-z]|u\.s)|\.\.)$",
    re.IGNORECASE,
)
_MATH = re.compile(
    r"(?<![\\$])\$\$?(?=\S)((?:[^$\\]|\\.){1,500}?)(?<=\S)\$\$?(?!\d)|\\\((.{1,500}?)\\\)|\\\[(.{1,500}?)\\\]",
    re.DOTALL,
)
_WHOLE_EQUATION = re.compile(r"(?:[=→⇒]|->|=>)\s*\S*\d\S*\s*$")
_NUMBER_ALONE = re.compile(r"[-−]?[ \t]?[\d.,]*\d")
_REMARK = re.compile(
    r"(?:\s*[,;:.–—-]+\s*|\s+|(?<=[})\]$*`]))(?:because|since|as\s+(?:we|it|the|there|each)|so\b|which|where|whenever|when|for\b|if\b|that\s+is\b|hence|thus|therefore|given|assuming|"
    r"after|before|with\b|not\b|but\b|and\s+not|rather|instead|making|meaning|by\b|using|from|due|obtained|found|provided|while|whose|on\b|at\b|in\b|is\b|are\b|"
    r"and\s+(?:so|no|not|we|it|this|that|the|then|therefore|thus|she|he|they|i)\b|then\b|now\b|this\b|these\b|it\b|we\b|let\b|per\b|to\s+(?:the|get|make|see)\b|rounded|correct|approximately|about|or\s+(?:about|approximately|roughly|more\b|fewer\b|less\b|greater\b|higher\b|above\b|so\b)|≈|\\approx|"
    r"n\s*(?:∈|\\in)|k\s*(?:∈|\\in)|~|!|<|\#)"
    r"|\s*[;:–—]\s|\s+-\s+(?=[A-Za-z]{2})|,\s+(?=[a-z]{2,})|(?<![A-Za-z])\s*\((?=[^()]*\)?[.*\s]*$)|(?<=[A-Za-z])\s+\((?=[^()]*\)?[.*\s]*$)|\s*\[(?=[^\[\]]*\][.*\s]*$)|\s*(?:→|=>|\\quad|\\qquad|//|%\s|\s#)|\s*,?\s*(?:n|k|m)\s*(?:∈|\\in\b)",
    re.IGNORECASE,
)
_HEDGE = re.compile(r"^[\s,:]*(?:(?:e\.g\.|i\.e\.|approx\.|ca\.)[,\s]*)?")
_REASON = re.compile(
    r"[\s,;.*]*(?:[(\[]|because\b|since\b|as\b|which\b|where\b|when\b|i\.e\.|for\b|≈|\\approx)", re.IGNORECASE
)
_THOUSANDS = re.compile(r"\d\s?[kKMB]$")
_LETTER = r"[^\W\d_\u2070-\u214f\U0001d400-\U0001d7ff]"
"""A letter that is no superscript and no symbol of mathematics."""
_NAMELY = re.compile(r"\bnamely\b|\bi\.e\.,?|\bthat\s+is,", re.IGNORECASE)
_CORRECTION = re.compile(rf"[,;:…–—(.-]*\s*{statements.CORRECTION}", re.IGNORECASE)
_NOT_BUT = re.compile(
    r"^not\s+(?:only\s+)?.{1,80}?,?\s+but\s+(?:rather\s+|exactly\s+|instead\s+)?"
    r"|^(?:it\s+)?(?:isn['’]t|is\s+not)\s.{1,80}?[,;]\s*(?:but\s+)?it(?:['’]s|\s+is)\s+",
    re.IGNORECASE,
)
_OPERATION = re.compile(r"(?:\\(?:i?int|oint|sum|prod|lim)(?![a-z])|[∫∑∏]|lim\b)[^\n]*=\s*")
r"""What is computed, and its equals sign, before the value: `\int_0^1 x^2 dx = `."""
_WORKING = re.compile(r"^(\S*\d)\s+\([^()]*\d\s*[-+*/×·x=]\s*\$?\d[^()]*\)$")
"""A number with how it was worked out in brackets behind it, `42 (6 x 7)`."""
_TWICE = re.compile(r"(.*[^\s(])\s+\(([^()]*)\)", re.DOTALL)


def own_part(text: str) -> str:
    """The text up to where a next question begins, in any of the forms in which a model goes on by itself."""
    for match in _NEXT.finditer(text):
        before = text[: match.start()]
        # What a model first writes may be a heading of its own: "Example: …", "Problem: … Solution: … 5".
        if _holds_answer(before):
            return before
    return text


def _holds_answer(before: str) -> bool:
    return bool(re.search(r"\w", before)) and (
        bool(re.search(r"####\s*\S|\\boxed|\banswer\b", before, re.IGNORECASE))
        or bool(re.search(r"[\d\\]", before))
        or len(before.strip()) <= 80
    )


def _asked_again(text: str) -> str:
    """The text up to a new paragraph behind the answer that asks a question, and is followed by its solution."""
    mark = _ANSWERED.search(text)
    line = re.match(r"\s*(\S[^\n=]{0,60})\n\s*\n", text)
    if line is not None and not readings(dressed_off(line[1])):
        line = None
    if mark is None and line is None:
        return text
    begin = line.end(1) if line else mark.end() if mark else 0
    for paragraph in _ASKED.finditer(text[begin:]):
        if paragraph[0].lstrip().startswith("Part") and re.search(r"\bPart[ \t]+[1A]\b", text[:begin]):
            continue
        if len(paragraph[0].split()) > 4 or "?" not in paragraph[0]:
            return text[: begin + paragraph.start()]
    return text


def candidates(text: str, complete: bool) -> Iterator[tuple[str, str]]:
    """Places where the answer may stand, the most explicit first: what stands there, and which kind of place it is.

    `box`, `hashes` and `phrase` are marked; `first` is a number given before its explanation, `whole` a text that is
    nothing but an answer, `last` the end of the text.
    """
    ended = complete or "</answer>" in text
    if "<answer>" not in text:
        text = text.split("</answer>")[0]
    text = re.sub(r"^\s*A:\s+", "", _BARE_BOX.sub(r"\1{\2}", text))
    text = _ASKED_BACK.sub("", _TAGGED.split(text, maxsplit=1)[0])
    scopes = [text]
    if "</think>" in text:
        scopes.insert(0, text.rsplit("</think>", 1)[1])
    if "<answer>" in text:
        scopes.insert(0, text.rsplit("<answer>", 1)[1].split("</answer>", 1)[0])
    for scope in scopes:
        scope = _asked_again(own_part(scope))
        yield from _marked(scope, complete)
        yield statements.spelled(statements.given_first(scope) or ""), "first"
        if ended and not _UNFINISHED.search(scope):
            yield scope, "whole"
            yield from ((each, "last") for each in _endings(scope))
            if not _is_formula(scope):
                yield _last_value(scope[-8 * LONGEST :]) or "", "last"


def _is_formula(text: str) -> bool:
    """Whether a text is one line with fewer than two words: read whole or not at all, never by its last number.

    A word with a letter that formulas do not have (Réponse, Ответ, 答) is prose by itself.
    """
    words = re.findall(rf"(?<![\\A-Za-z]){_LETTER}{{2,}}", text)
    prose = len(words) > 1 or re.search(f"[{IDEOGRAPHS}]", text) or not "".join(words).isascii()
    return "\n" not in text.strip() and not prose and not _WHOLE_EQUATION.search(text[-100:])


def _marked(text: str, complete: bool) -> Iterator[tuple[str, str]]:
    boxes = _boxed(text)
    if boxes:
        yield ", ".join(boxes), "box"
    elif complete and (opened := re.search(r"\\f?boxed\s*\{([^\n]{1,500})$", text)):
        yield opened[1].rstrip("$. "), "box"
    for match in reversed(list(_HASHES.finditer(text))):
        line = match[1].strip()
        if not re.match(r"[*_ ]*(?:Step|Part|Problem|Question|Example|Explanation|Solution)\b", line):
            yield line[: 2 * LONGEST], "hashes"
    for match in reversed(list(_MARK.finditer(text))):
        if not _SUPPOSED.search(text[max(0, match.start() - 40) : match.start()]):
            yield sentence(text[match.end() : match.end() + LONGEST]), "phrase"


def _boxed(text: str) -> list[str]:
    r"""The contents of the last `\boxed{…}`, and of those just before it that words such as "and" join to it."""
    boxes: list[tuple[int, int, str]] = []
    for match in list(re.finditer(r"\\f?box(?:ed)?\s*\{", text))[-20:]:
        depth = 1
        for position in range(match.end(), min(len(text), match.end() + LONGEST)):
            if text[position - 1] == "\\":
                continue
            depth += {"{": 1, "}": -1}.get(text[position], 0)
            if depth == 0:
                boxes.append((match.start(), position + 1, text[match.end() : position]))
                break
    joined: list[str] = []
    begin = -1
    for start, end, content in reversed(boxes):
        if joined and not re.fullmatch(
            r"(?=.{0,60}$)[\s$\\)(\[\],;.]*"
            r"(?:and|or|,|;|&|\\text\{ ?(?:and|or) ?\})[\s$\\)(\[\]]*(?:[A-Za-z]\w?\s*=\s*)?",
            text[end:begin],
        ):
            break
        joined.insert(0, content)
        begin = start
    return [content for content in joined if content.strip()]


def sentence(rest: str) -> str:
    """The first sentence of a text, or its first line; a formula between dollar signs is not cut."""
    rest = rest.lstrip(" \t*_")[: 2 * LONGEST]
    display = re.match(r"\s*(?:\$\$|\\\[)\s*(.+?)\s*(?:\$\$|\\\])", rest, re.DOTALL)
    if display:
        return display[1]
    rest = rest.lstrip()
    for end in _SENTENCE_END.finditer(rest):
        before = rest[: end.start()]
        if _ABBREVIATED.search(before[-8:]) or (
            end[0] == "\n" and re.search(r"\\begin\{[^{}]*\}(?!.*\\end)", before, re.DOTALL)
        ):
            continue
        return before.strip()
    return rest.strip()


def heads(text: str) -> Iterator[str]:
    """A piece of prose, whole, and then cut before the remarks in it, the last remark first."""
    text = _HEDGE.sub("", text)
    yield text
    corrected = list(_CORRECTION.finditer(text))
    if corrected:
        yield text[corrected[-1].end() :]
    operation = _OPERATION.match(text)
    if operation:
        yield text[operation.end() :]
    but = _NOT_BUT.match(text)
    if but:
        yield text[but.end() :]
        return
    for remark in reversed(list(_REMARK.finditer(text))[:40]):
        head = text[: remark.start()].rstrip(" ,;:*_")
        if head:
            yield head
    namely = _NAMELY.search(text)
    if namely:
        yield text[namely.end() :].strip()
    yield sentence(text)


def undelimited(text: str) -> str:
    """The text without the delimiters of its formulas; dollar signs of amounts stay."""
    return _MATH.sub(lambda formula: next(group for group in formula.groups() if group), text)


def dressed_off(text: str) -> str:
    r"""The text without emphasis, quotation marks, delimiters of formulas and a final stop."""
    text = undelimited(text.strip().strip("`").replace("\\$", "$"))
    text = re.sub(r"(?<![\w)}])\*\*(?=\S)|(?<=\S)\*\*(?![\w(-])", "", text).strip("*_ \n\t")
    text = re.sub(r"^[\"'“‘](.*)[\"'”’]\.?$", r"\1", text)
    return re.sub(r"(?<![.\\])\.$", "", text).strip()


def _said_once(text: str) -> str:
    """The text without a bracket that says the same number again: `5/2 (2.5)` as `5/2`."""
    match = _TWICE.fullmatch(text)
    if match is None or len(text) > LONGEST:
        return text
    first, again = (readings(part, place) for part, place in ((match[1], True), (match[2], False)))
    return match[1] if first and again and roughly_same(first[0][0], again[0][0]) else text


def value_in(text: str, place: str) -> tuple[tuple[Value, ...], str] | None:
    """What stands at a place as values, and the part of it that is the value; None where the grammar reads none."""
    bare = _said_once(_LABEL.sub("", dressed_off(text)))
    exact = place in ("box", "hashes")
    if place == "hashes":
        bare = _WORKING.sub(r"\1", bare)
    formula = text.rstrip().endswith(("$", "\\)", "\\]"))
    denied = statements.denies(bare)
    letter = _THOUSANDS.search(bare) and (place == "hashes" or (place == "whole" and bare[0] in "$€£"))
    if not denied and not letter and (exact or place == "whole"):
        read = readings(bare) if len(bare) <= LONGEST else ()
        if read:
            return tuple(value for value, _ in read), bare if place == "box" else read[0][1] or bare
    if place == "whole":
        if "\n" in bare or len(bare) > LONGEST:
            return None
        bare = dressed_off(sentence(text).rstrip("!"))
    for whole in heads(bare):
        head = _said_once(_LABEL.sub("", dressed_off(whole if exact or formula else whole.rstrip("!"))))
        if len(head) > LONGEST or not head:
            continue
        if statements.denies(bare[bare.find(head) :] if head in bare else head):
            continue
        read = readings(head, True)
        led = place == "whole" and head != bare and read and not plain(head).startswith(read[0][1])
        rest = bare[len(head) :] if bare.startswith(head) else ""
        led = led or (place in ("whole", "last") and bool(re.search(r"[\d\\]", rest)) and not _REASON.match(rest))
        if read and not led:
            # "It is 5!" may say 5 or 120.
            shouted = readings(dressed_off(whole), True) if whole.endswith("!") and not exact else ()
            return tuple(value for value, _ in (*read, *shouted)), read[0][1] or head
    return None


def _endings(text: str) -> Iterator[str]:
    """The last sentence of a text from each of its last verbs and equals signs on."""
    line = text.rstrip().rsplit("\n", 1)[-1]
    ends = [0, *(end.end() for end in _SENTENCE_END.finditer(line))]
    last = next((line[end:] for end in reversed(ends) if line[end:].strip(" .*_`$\"'")), "")
    if len(last) > LONGEST or not re.search(r"[\\π√∞{}()\[\]<>≤≥±^,]|[\d)][a-z]\b|\bor\b|=.*\band\b.*=", last):
        return
    for verb in reversed(
        list(
            re.finditer(
                r"\b(?:is|are|be|equals|get|gives?|have|obtain|conclude|therefore|thus|so|hence)\b:?|:\s|≈|⇒|\\implies|=>",
                last,
            )
        )
    ):
        yield last[verb.end() :]


def _last_value(text: str) -> str | None:
    """The last formula or number of a text, whichever ends later."""
    spaced = _spaced_out(text)
    last = statements.last(spaced)
    formula = _last_formula(text, spaced)
    if formula and (last is None or formula.end() > last[1]):
        return _content(formula)
    return statements.spelled(last[0]) if last else None


def _last_formula(text: str, spaced: str) -> re.Match[str] | None:
    """The last formula of a text that its words do not deny or leave open, as in "not $x$" and "$3$ or $4$"."""
    formulas = list(_MATH.finditer(text))
    spans = [(begin, end) for _, begin, end in statements.stated_numbers(spaced)] if formulas else []

    def is_stated(formula: re.Match[str]) -> bool:
        if _NUMBER_ALONE.fullmatch(_content(formula)):
            return any(begin < formula.end() and formula.start() < end for begin, end in reversed(spans))
        return not statements.unstated(spaced, *formula.span())

    return next((formula for formula in reversed(formulas) if is_stated(formula)), None)


def _spaced_out(text: str) -> str:
    """The text with the delimiters of formulas that are one number as spaces, so that every place stays the same."""

    def bare(formula: re.Match[str]) -> str:
        content = _content(formula)
        return content.center(len(formula[0])) if _NUMBER_ALONE.fullmatch(content) else formula[0]

    return _MATH.sub(bare, text)


def _content(formula: re.Match[str]) -> str:
    return next(group for group in formula.groups() if group)
