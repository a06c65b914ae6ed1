"""Files of commands and what they print, in the manner of etcd's raft and its `datadriven` tests.

A step is one or more commands, a line `----`, and the output up to the next empty line:

    append 1 a b acks=all
    fetch 2
    ----
    the output

Everything else is empty or begins with `#`. `run` gives the text as it should be: equal to the file
where nothing has changed, what `--rewrite` writes where something has.
"""

from __future__ import annotations

import difflib
import inspect
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NewType, TypeVar, get_args, get_type_hints

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SEPARATOR = "----"
NOTHING_TO_SAY = "ok"
_OPTION = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}

Duration = NewType("Duration", int)
"""Milliseconds, written `250ms`, `10s`, `5m`, `2h` or `7d`."""
Ids = NewType("Ids", tuple[int, ...])
"""Broker ids, written `1,2,3`, or `none`."""
Method = TypeVar("Method", bound="Callable[..., Any]")


class CommandError(Exception):
    """A command is written wrongly; the text says how."""


class TranscriptError(Exception):
    """What is wrong in a transcript, after the file and the line."""


def command(method: Method) -> Method:
    """Make a method of an interpreter a command, its arguments those that people may write."""
    method.is_command = True  # type: ignore[attr-defined]
    return method


class Interpreter:
    """Carries out commands: each is a method marked with `command`, whose arguments are checked.

    `_` in names of commands and options is written `-`. Arguments are converted to the types in the
    method's signature. What a method `say`s is the command's output.
    """

    def __init__(self) -> None:
        self._said: list[str] = []

    def say(self, line: str) -> None:
        """Add a line to the output."""
        assert line.strip(), "an empty line would end the output"
        assert "\n" not in line
        self._said.append(line)

    def do(self, line: str) -> list[str]:
        """Carry out one command and return what it says."""
        try:
            name, *words = shlex.split(line)
        except ValueError as error:
            raise CommandError(str(error)) from error
        method = self._method(name)
        positional, options = _bind(name, method, words)
        method(*positional, **options)
        said, self._said = self._said, []
        return said

    def close(self) -> None:
        """Let go of everything; the transcript has ended."""

    def _method(self, name: str) -> Callable[..., None]:
        methods = {
            attribute.replace("_", "-"): getattr(self, attribute)
            for attribute in dir(type(self))
            if getattr(getattr(type(self), attribute), "is_command", False)
        }
        if name not in methods:
            near = difflib.get_close_matches(name, methods, 1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise CommandError(f"no command {name!r}; {hint}There are: {', '.join(methods)}")
        return methods[name]  # type: ignore[no-any-return]


def _bind(
    name: str, method: Callable[..., None], words: list[str]
) -> tuple[list[Any], dict[str, Any]]:
    """Give a command's words to the parameters of its method, each in its type."""
    parameters = inspect.signature(method).parameters
    types = {key: _plain(wanted) for key, wanted in get_type_hints(method).items()}
    places = [each for each in parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]
    rest = next((each for each in parameters.values() if each.kind is each.VAR_POSITIONAL), None)
    named = {
        each.name.replace("_", "-"): each
        for each in parameters.values()
        if each.kind is each.KEYWORD_ONLY
    }
    free = next((each for each in parameters.values() if each.kind is each.VAR_KEYWORD), None)
    positional: list[Any] = []
    options: dict[str, Any] = {}
    for word in words:
        matched = _OPTION.fullmatch(word)
        if matched is None:
            if len(positional) < len(places):
                parameter = places[len(positional)]
            elif rest is not None:
                parameter = rest
            else:
                raise CommandError(f"{name} has no place for {word!r}: {_usage(name, parameters)}")
            positional.append(_convert(parameter.name, word, types[parameter.name]))
            continue
        key, value = matched.groups()
        if key in named:
            parameter = named[key]
            key = parameter.name
        elif free is not None:
            parameter = free
        else:
            raise CommandError(f"{name} has no option {key!r}: {_usage(name, parameters)}")
        if key in options:
            raise CommandError(f"{name} is given {key!r} twice")
        options[key] = _convert(key, value, types[parameter.name])
    missing = [each.name for each in places[len(positional) :] if each.default is each.empty]
    missing += [
        key
        for key, each in named.items()
        if each.default is each.empty and each.name not in options
    ]
    if missing:
        raise CommandError(f"{name} lacks {', '.join(missing)}: {_usage(name, parameters)}")
    return positional, options


def _plain(wanted: Any) -> Any:
    """Return the type itself where `None` stands for an argument that is not given."""
    return next((each for each in get_args(wanted) if each is not type(None)), wanted)


def _convert(name: str, word: str, wanted: Any) -> Any:
    try:
        if wanted is int:
            return int(word)
        if wanted is Ids:
            return () if word == "none" else tuple(int(each) for each in word.split(","))
        if wanted is Duration:
            matched = _DURATION.fullmatch(word)
            if matched is None:
                raise ValueError(word)
            return int(matched[1]) * _UNITS_MS[matched[2]]
    except ValueError:
        shape = {int: "a number", Ids: "ids like 1,2 or none", Duration: "a time like 10s"}[wanted]
        raise CommandError(f"{name} is {shape}, not {word!r}") from None
    return word


def _usage(name: str, parameters: Any) -> str:
    """Return how a command is written."""
    words = [name]
    for each in parameters.values():
        written = each.name.replace("_", "-")
        if each.kind is each.VAR_POSITIONAL:
            written = f"{written}…"
        elif each.kind is each.VAR_KEYWORD:
            written = f"{written}=…"
        elif each.kind is each.KEYWORD_ONLY:
            written = f"{written}="
        is_needed = each.default is each.empty and each.kind in (
            each.POSITIONAL_OR_KEYWORD,
            each.KEYWORD_ONLY,
        )
        words.append(written if is_needed else f"[{written}]")
    return " ".join(words)


@dataclass
class Step:
    """Commands with their line numbers; in the file an output follows."""

    commands: list[tuple[int, str]] = field(default_factory=list)


def parse(path: Path) -> list[str | Step]:
    """Read a transcript: lines of prose, and steps without their outputs."""
    parts: list[str | Step] = []
    lines = path.read_text().splitlines()
    at = 0
    while at < len(lines):
        if not lines[at].strip() or lines[at].startswith("#"):
            parts.append(lines[at])
            at += 1
            continue
        step = Step()
        while at < len(lines) and lines[at] != SEPARATOR:
            if not lines[at].strip():
                raise TranscriptError(f"{path}:{at + 1}: a line {SEPARATOR!r} must end a step")
            step.commands.append((at + 1, lines[at]))
            at += 1
        if at == len(lines):
            raise TranscriptError(f"{path}:{at}: a line {SEPARATOR!r} must end a step")
        at += 1
        while at < len(lines) and lines[at].strip():
            at += 1
        parts.append(step)
    return parts


def run(path: Path, interpreter: Interpreter) -> str:
    """Carry out a transcript; returns its text with the outputs that there are now."""
    text: list[str] = []
    for part in parse(path):
        if isinstance(part, str):
            text.append(part)
            continue
        output: list[str] = []
        for number, line in part.commands:
            try:
                output += interpreter.do(line)
            except CommandError as error:
                raise TranscriptError(f"{path}:{number}: {error}") from error
            except Exception as error:
                error.add_note(f"{path}:{number}: {line}")
                raise
            text.append(line)
        text += [SEPARATOR, *(output or [NOTHING_TO_SAY])]
    return "\n".join(text) + "\n"


def difference(path: Path, now: str) -> str:
    """Say which lines of a transcript are others now; empty if none are."""
    expected = path.read_text()
    lines = difflib.unified_diff(
        expected.splitlines(), now.splitlines(), f"{path} (expected)", "what there is now", n=6
    )
    return "\n".join(line.rstrip("\n") for line in lines)
