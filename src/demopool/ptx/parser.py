"""Parse PTX text into a ``Program``.

Every instruction keeps its line in the PTX, and its line in the source if that is known.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from pathlib import PurePath

from .faults import UnknownInstruction
from .syntax import (
    BITS,
    Address,
    Function,
    Immediate,
    Instruction,
    Operand,
    Program,
    Register,
    Symbol,
    Variable,
    Vector,
)

_LINKAGE = r"(?:\.(?:visible|weak|extern|common)\s+)*"
_NAME = r"[%$\w]+"
_VARIABLE = re.compile(
    rf"{_LINKAGE}\.(?P<space>shared|global|const|local|param)\s+"
    r"(?:\.align\s+(?P<align>\d+)\s+)?(?:\.attribute\([^)]*\)\s+)?\.(?P<type>\w+)\s+"
    r"(?:\.ptr\s+(?:\.(?:global|shared|const|local)\s+)?(?:\.align\s+\d+\s+)?)?"
    rf"(?P<name>{_NAME})\s*(?P<array>(?:\[\d*\])*)\s*(?:=\s*(?P<initial>.*))?$",
    re.DOTALL,
)
_FUNCTION = re.compile(
    rf"{_LINKAGE}\.(?P<kind>entry|func)\s*(?:\((?P<returns>[^)]*)\)\s*)?"
    rf"(?P<name>{_NAME})\s*(?:\((?P<params>[^)]*)\))?(?P<directives>[^{{;]*)",
)
_INSTRUCTION = re.compile(rf"(?:@(!?)({_NAME})\s+)?([a-z]\w*)((?:[.:]+\w+)*)\s*(.*)", re.DOTALL)
_LABEL = re.compile(rf"({_NAME}):(?!:)")
_LOC = re.compile(r"\.loc\s+(\d+)\s+(\d+)[^\n]*")
_FILE = re.compile(r"\.file\s+(\d+)\s+\"([^\"]*)\"")


def parse(text: str) -> Program:
    """Parse a whole PTX file."""
    return _Parser(text).program()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = _without_comments(text)
        self._starts = [0, *(m.end() for m in re.finditer("\n", self._text))]
        self._files = {
            int(m[1]): PurePath(m[2].replace("\\", "/")).name for m in _FILE.finditer(text)
        }

    def program(self) -> Program:
        text = self._text
        target = re.search(r"\.target\s+(\w+)", text)
        if target is None:
            raise UnknownInstruction("This is not PTX: it has no .target directive.")
        found = Program(target[1])
        at = 0
        while match := re.compile(r"\S").search(text, at):
            at = match.start()
            if skipped := re.compile(
                r"\.(?:version|target|address_size|file|loc|pragma)\b[^\n]*"
            ).match(text, at):
                at = skipped.end()
            elif text.startswith(".section", at):
                at = self._closing(text.index("{", at)) + 1
            elif function := _FUNCTION.match(text, at):
                at = self._function(found, function)
            else:
                end = text.find(";", at)
                variable = _VARIABLE.match(text[at : end if end >= 0 else at])
                if variable is None:
                    raise UnknownInstruction(
                        f"PTX line {self._line(at)} is not supported: {_first_line(text[at:])}"
                    )
                _declare(found, variable)
                at = end + 1
        return found

    def _function(self, program: Program, match: re.Match[str]) -> int:
        """Add a function or a declaration, and return its end."""
        end = match.end()
        if self._text[end] == ";":
            program.declared.add(match["name"])
            return end + 1
        body_end = self._closing(end)
        function = Function(
            match["name"],
            match["kind"] == "entry",
            _parameters(match["params"]),
            _parameters(match["returns"]),
        )
        most = re.search(r"\.(?:maxntid|reqntid)\s+([\d,\s]+)", match["directives"])
        if most:
            function.max_threads = 1
            for size in most[1].split(","):
                function.max_threads *= int(size)
        self._body(function, end + 1, body_end)
        program.functions[function.name] = function
        return body_end + 1

    def _body(self, function: Function, at: int, end: int) -> None:
        text, source = self._text, ""
        blank = re.compile(r"[\s{}]*")  # braces at the start of a statement open and close a scope
        while True:
            at = blank.match(text, at, end).end()  # type: ignore[union-attr]  # always matches
            if at >= end:
                return
            if label := _LABEL.match(text, at, end):
                function.labels[label[1]] = len(function.code)
                at = label.end()
                continue
            if place := _LOC.match(text, at, end):
                name = self._files.get(int(place[1]), "")
                source = f"{name}:{place[2]}" if name and place[2] != "0" else source
                at = place.end()
                continue
            stop = text.index(";", at)
            self._statement(function, " ".join(text[at:stop].split()), self._line(at), source)
            at = stop + 1

    def _statement(self, function: Function, text: str, line: int, source: str) -> None:
        if text.startswith(".reg"):
            _registers(function, text)
        elif text.startswith((".shared", ".local")):
            match = _VARIABLE.match(text)
            if match is None:
                raise UnknownInstruction(f"PTX line {line} is not supported: {text}")
            getattr(function, match["space"]).append(_variable(match))
        elif text.startswith((".param", ".pragma")):
            pass  # parameters of calls are created by the first store to them
        else:
            function.code.append(_instruction(text, line, source))

    def _closing(self, opening: int) -> int:
        depth = 0
        for brace in re.compile(r"[{}]").finditer(self._text, opening):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                return brace.start()
        raise UnknownInstruction("This PTX ends inside a function.")

    def _line(self, at: int) -> int:
        return bisect_right(self._starts, at)


def _without_comments(text: str) -> str:
    """Remove comments, keeping the line breaks so that line numbers stay the same."""
    text = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.DOTALL)
    return re.sub(r"//[^\n]*", "", text.replace("\0", ""))


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0][:80]


def _parameters(text: str | None) -> tuple[Variable, ...]:
    found = []
    for piece in (text or "").split(","):
        if piece.strip():
            match = _VARIABLE.match(piece.strip())
            if match is None:
                raise UnknownInstruction(f"This parameter is not supported: {piece.strip()}")
            found.append(_variable(match))
    return tuple(found)


def _variable(match: re.Match[str]) -> Variable:
    width = BITS.get(match["type"], 0) // 8
    if not width:
        raise UnknownInstruction(f"Variables of type {match['type']} are not supported.")
    count = 1
    for size in re.findall(r"\[(\d*)\]", match["array"]):
        count *= int(size or 0)
    initial = _initial(match["initial"], match["type"]) if match["initial"] else b""
    align = int(match["align"] or width)
    return Variable(match["name"], match["type"], count * width, align, initial)


def _initial(text: str, kind: str) -> bytes:
    width = BITS[kind] // 8
    data = b""
    for item in re.findall(r"[^{},\s]+", text):
        value = _number(item)
        if value is None:
            raise UnknownInstruction(f"This initial value is not supported: {item}")
        if kind in ("f32", "f64") and not value.float_bits:
            data += struct.pack("<f" if kind == "f32" else "<d", float(value.value))
        else:
            data += (value.value % (1 << BITS[kind])).to_bytes(width, "little")
    return data


def _declare(program: Program, match: re.Match[str]) -> None:
    variable = _variable(match)
    if match["space"] == "shared":
        if variable.size:
            program.shared.append(variable)
        else:
            program.dynamic_shared.append(variable.name)
    elif match["space"] == "const":
        program.constants.append(variable)
    else:
        program.memory.append(variable)


def _registers(function: Function, text: str) -> None:
    kind, names = re.match(r"\.reg\s+\.(\w+)\s+(.*)", text).groups()  # type: ignore[union-attr]
    if kind not in BITS:
        raise UnknownInstruction(f"Registers of type {kind} are not supported.")
    for name in (piece.strip() for piece in names.split(",")):
        if many := re.fullmatch(rf"({_NAME})<(\d+)>", name):
            function.registers |= {f"{many[1]}{i}": kind for i in range(int(many[2]))}
        else:
            function.registers[name] = kind


def _instruction(text: str, line: int, source: str) -> Instruction:
    match = _INSTRUCTION.fullmatch(text)
    if match is None:
        raise UnknownInstruction(f"PTX line {line} is not supported: {text}")
    negated, guard, op, modifiers, rest = match.groups()
    return Instruction(
        op,
        tuple(modifiers.replace("::", "_").strip(".").split(".")) if modifiers else (),
        tuple(_operand(piece, line) for piece in _split(rest)),
        Register(guard, negated == "!") if guard else None,
        line,
        source,
    )


def _split(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    pieces, depth, current = [], 0, ""
    for character in text:
        depth += (character in "{[(") - (character in "}])")
        if character == "," and depth == 0:
            pieces.append(current.strip())
            current = ""
        else:
            current += character
    return [*pieces, current.strip()] if current.strip() else pieces


def _operand(text: str, line: int) -> Operand:
    if text[0] in "{(":
        inner = tuple(_operand(piece, line) for piece in _split(text[1:-1]))
        return Vector(inner, text[0] + text[-1])
    if text[0] == "[":
        return _address(text[1:-1].strip(), line)
    if "|" in text:
        return Vector(tuple(_operand(piece.strip(), line) for piece in text.split("|")), "|")
    if text[0] in "!%":
        return Register(text.lstrip("!"), text[0] == "!")
    number = _number(text)
    if number is not None:
        return number
    if re.fullmatch(r"[$\w]+", text):
        return Symbol(text)
    raise UnknownInstruction(f"PTX line {line}: the operand {text} is not supported.")


def _address(text: str, line: int) -> Address:
    match = re.fullmatch(rf"({_NAME})\s*(?:\+\s*(-?\w+))?", text)
    if match is None:
        raise UnknownInstruction(f"PTX line {line}: the address [{text}] is not supported.")
    base = _operand(match[1], line)
    assert isinstance(base, Register | Symbol | Immediate)
    return Address(base, int(match[2], 0) if match[2] else 0)


def _number(text: str) -> Immediate | None:
    if match := re.fullmatch(r"0([fFdD])([0-9a-fA-F]+)", text):
        bits = 32 if match[1] in "fF" else 64
        if len(match[2]) * 4 == bits:
            return Immediate(int(match[2], 16), bits)
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        digits = text.rstrip("U")
        octal = re.fullmatch(r"-?0[0-7]+", digits)
        return Immediate(int(digits, 8) if octal else int(digits, 0))
    return None
