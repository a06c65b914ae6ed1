"""Writes the decoders: one function per struct and encoding (plain or flexible).

Reading past the end needs no separate check. Fixed values raise IndexError or struct.error. A slice
that is too short leaves `position` after the end, where the next read, or the check at the end of
the message, detects it. Counts must be checked at once, because they cause allocations. An element
may take two bytes of a frame and hundreds of bytes of memory, so all elements of a request are
counted together.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from codegen.emit_types import annotation, default_value, function_name
from codegen.layout import (
    element_minimum,
    format_size,
    groups,
    is_tag,
    negated,
)
from codegen.schema import FIXED_FORMATS, Field, SchemaError, StructSchema
from codegen.versions import VersionRange
from codegen.writer import SourceWriter

REQUEST: Final = "request"


def emit_decoder(
    writer: SourceWriter,
    struct: StructSchema,
    window: VersionRange,
    *,
    is_flexible: bool,
    kind: str,
) -> None:
    """Write the function that decodes `struct` in the versions of `window`."""
    name = function_name("decode", struct, is_flexible=is_flexible)
    arguments = ["buffer: memoryview", "position: int", "version: int"]
    writer.call(f"def {name}(", arguments, f") -> tuple[{struct.class_name}, int]:")
    with writer.indented():
        _DecoderEmitter(writer, struct, window, is_flexible, kind).emit()
    writer.line()
    writer.line()


class _DecoderEmitter:
    """State of one generated function: adjacent fixed values whose code is not written yet."""

    def __init__(
        self,
        writer: SourceWriter,
        struct: StructSchema,
        window: VersionRange,
        is_flexible: bool,
        kind: str,
    ) -> None:
        self.writer = writer
        self.struct = struct
        self.window = window
        self.is_flexible = is_flexible
        self.kind = kind
        self.run: list[tuple[str, str]] = []
        self.declared: set[str] = set()

    def emit(self) -> None:
        plain = [each for each in self.struct.fields if not self._is_tag(each)]
        for condition, fields in groups(plain, self.window):
            if condition is None:
                self._emit_defaults(fields)
            elif condition == "":
                for field in fields:
                    self._emit_field(field)
            else:
                self._flush()
                with self.writer.block(f"if {condition}:"):
                    for field in fields:
                        self._emit_field(field)
                    self._flush()
                with self.writer.block("else:"):
                    self._emit_defaults(fields)
        if self.is_flexible:
            self._emit_tags([each for each in self.struct.fields if self._is_tag(each)])
        self._flush()
        self.writer.call(
            f"return {self.struct.class_name}(",
            [each.local for each in self.struct.fields],
            "), position",
        )

    def _is_tag(self, field: Field) -> bool:
        return is_tag(field, self.window, is_flexible=self.is_flexible)

    def _emit_defaults(self, fields: list[Field]) -> None:
        for field in fields:
            default = default_value(field)
            if default == "NULL_UUID":
                self.writer.use("NULL_UUID")
            needs_type = field.is_array or default == "None"
            hint = self._hint(field) if needs_type else ""
            self.writer.line(f"{field.local}{hint} = {default}")

    def _hint(self, field: Field) -> str:
        """Return the type annotation of the field's local for its first assignment, else ""."""
        if field.name in self.declared:
            return ""
        self.declared.add(field.name)
        return f": {annotation(field, self.kind)}"

    def _read(self, local: str, code: str) -> None:
        self.run.append((local, code))

    def _flush(self) -> None:
        run, self.run = self.run, []
        if not run:
            return
        if [code for _, code in run] == ["B"]:
            self.writer.line(f"{run[0][0]} = buffer[position]")
            self.writer.line("position += 1")
            return
        constant = self.writer.format_constant([code for _, code in run])
        names = ", ".join(local for local, _ in run)
        targets = f"({names},)" if len(run) == 1 else names
        if len(targets) + len(constant) > 60:
            self.writer.call(
                "(", [local for local, _ in run], f") = {constant}.unpack_from(buffer, position)"
            )
        else:
            self.writer.line(f"{targets} = {constant}.unpack_from(buffer, position)")
        self.writer.line(f"position += {sum(format_size(code) for _, code in run)}")

    def _read_size(self, local: str, *, plain_code: str, limit: str = "read_uvarint") -> None:
        """Write the code that reads a length; a compact one stays as sent: n + 1, 0 for null."""
        if not self.is_flexible:
            self._read(local, plain_code)
            self._flush()
            return
        self._read(local, "B")
        self._flush()
        with self.writer.block(f"if {local} > 127:"):
            self.writer.line(f"{local}, position = {self.writer.use(limit)}(buffer, position - 1)")

    def _emit_field(self, field: Field) -> None:
        if field.fixed_format is not None:
            self._read(field.local, field.fixed_format)
        elif field.is_array:
            self._emit_array(field)
        elif field.struct is not None:
            self._emit_struct(field, field.struct)
        else:
            self._emit_sized(field)

    def _emit_sized(self, field: Field) -> None:
        is_string = field.type == "string"
        self._read_size(
            "size",
            plain_code="h" if is_string else "i",
            limit="read_string_size" if is_string else "read_uvarint",
        )
        null, length = ("size == 0", "size - 1") if self.is_flexible else ("size < 0", "size")
        with self._unless_null(field, null, "size"):
            self.writer.line(f"end = position + {length}")
            value = "buffer[position:end]"
            if is_string:
                value += ".tobytes().decode()"
            self.writer.line(f"{field.local} = {value}")
            self.writer.line("position = end")

    @contextmanager
    def _unless_null(self, field: Field, null: str, size: str) -> Iterator[None]:
        """Write branches around a value that may be null; only a refusal if it may not."""
        writer = self.writer
        carried = field.versions & self.window
        nullable = field.nullable.condition(carried)
        if nullable is None:
            with writer.block(f"if {null}:"):
                self._emit_refusal(field)
            yield
            return
        hint = self._hint(field)
        if hint:
            writer.line(f"{field.local}{hint}")
        refusals = [] if null.endswith("== 0") else [f"{size} != -1"]
        if nullable:
            refusals.append(negated(nullable))
        with writer.block(f"if {null}:"):
            if refusals:
                with writer.block(f"if {' or '.join(refusals)}:"):
                    self._emit_refusal(field)
            writer.line(f"{field.local} = None")
        with writer.block("else:"):
            yield

    def _emit_refusal(self, field: Field) -> None:
        self.writer.line(f'raise {self.writer.use("null_value")}("{self._title(field)}")')

    def _emit_array(self, field: Field) -> None:
        self._read_size("count", plain_code="i")
        null = "count == 0" if self.is_flexible else "count < 0"
        with self._unless_null(field, null, "count"):
            if self.is_flexible:
                self.writer.line("count -= 1")
            minimum = element_minimum(field, self.window, is_flexible=self.is_flexible)
            product = "count" if minimum == 1 else f"count * {minimum}"
            with self.writer.block(f"if {product} > len(buffer) - position:"):
                self.writer.line(
                    f'raise {self.writer.use("oversized")}("{self._title(field)}", count)'
                )
            if self.kind == REQUEST:
                self._count_elements(field)
            self._emit_elements(field)

    def _count_elements(self, field: Field) -> None:
        """Write the count of an array's elements, each of which is an object to make.

        Numbers are unpacked together, in a hundredth of the time.
        """
        is_numbers = FIXED_FORMATS.get(field.type) not in (None, "16s")
        with self.writer.block("if count > 7:" if is_numbers else "if count:"):
            count = "count >> 3" if is_numbers else "count"
            self.writer.line(f"{self.writer.use('count_elements')}({count})")

    def _emit_elements(self, field: Field) -> None:
        writer = self.writer
        code = FIXED_FORMATS.get(field.type)
        if code is not None and code != "16s":
            writer.line(
                f"{field.local}{self._hint(field)} = list({writer.use('unpack_from')}"
                f'(f">{{count}}{code}", buffer, position))'
            )
            size = format_size(code)
            writer.line(f"position += count * {size}" if size > 1 else "position += count")
            return
        writer.line(f"{field.local}{self._hint(field)} = []")
        with writer.block("for _ in range(count):"):
            if field.struct is not None:
                function = function_name("decode", field.struct, is_flexible=self.is_flexible)
                element = f"{field.local}_element"
                writer.call(f"{element}, position = {function}(", ["buffer", "position", "version"])
                writer.line(f"{field.local}.append({element})")
            elif code == "16s":
                writer.line(f"{field.local}.append(bytes(buffer[position : position + 16]))")
                writer.line("position += 16")
            elif field.type == "string":
                self._read_size("size", plain_code="h", limit="read_string_size")
                null = "size == 0" if self.is_flexible else "size < 0"
                with writer.block(f"if {null}:"):
                    self._emit_refusal(field)
                writer.line(f"end = position + size{' - 1' if self.is_flexible else ''}")
                writer.line(f"{field.local}.append(buffer[position:end].tobytes().decode())")
                writer.line("position = end")
            else:
                raise SchemaError(f"{self._title(field)}: no arrays of {field.type}")

    def _emit_struct(self, field: Field, struct: StructSchema) -> None:
        function = function_name("decode", struct, is_flexible=self.is_flexible)
        decode = f"{field.local}, position = {function}(buffer, position, version)"
        if (field.nullable & self.window).is_empty:
            self._flush()
            self.writer.line(decode)
            return
        self._read("size", "b")
        self._flush()
        with self._unless_null(field, "size < 0", "size"):
            self.writer.line(decode)

    def _emit_tags(self, fields: list[Field]) -> None:
        writer = self.writer
        if not fields and not self.run and self.kind != REQUEST:
            skip = writer.use("skip_tags")
            writer.line(
                f"position = {skip}(buffer, position) if buffer[position] else position + 1"
            )
            return
        self._read("tags", "B")
        if not fields:
            self._flush()
            with writer.block("if tags:"):
                self._count_tags()
                writer.line(f"position = {writer.use('skip_tags')}(buffer, position - 1)")
            return
        self._flush()
        self._emit_defaults(fields)
        with writer.block("if tags:"):
            self._count_tags()
            writer.line(f"payloads, end_of_tags = {writer.use('read_tags')}(buffer, position - 1)")
            with writer.block("for tag, position, stop in payloads:"):
                keyword = "if"
                for field in sorted(fields, key=lambda each: each.tag):
                    condition = (field.tagged & field.versions).condition(self.window)
                    test = f"tag == {field.tag}" + (f" and {condition}" if condition else "")
                    with writer.block(f"{keyword} {test}:"):
                        self._emit_field(field)
                        self._flush()
                    keyword = "elif"
                with writer.block("else:"):
                    writer.line("continue")
                with writer.block("if position != stop:"):
                    writer.line(
                        f'raise {writer.use("wrong_tag_size")}("{self.struct.class_name}", tag)'
                    )
            writer.line("position = end_of_tags")

    def _count_tags(self) -> None:
        """Write the check of the tag count. Its first byte is enough: larger counts are refused."""
        if self.kind == REQUEST:
            self.writer.line(f"{self.writer.use('count_elements')}(tags)")

    def _title(self, field: Field) -> str:
        return f"{self.struct.class_name}.{field.name}"
