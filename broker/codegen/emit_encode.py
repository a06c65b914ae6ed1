"""Writes the encoders: one function per struct and encoding (plain or flexible).

They append to one list of byte strings; records split it into segments. A field that the version
does not carry is dropped if it is ignorable, else it must have its default.
"""

from codegen.emit_types import default_value, function_name
from codegen.layout import groups, is_tag, negated
from codegen.schema import FIXED_FORMATS, Field, SchemaError, StructSchema
from codegen.versions import VersionRange
from codegen.writer import SourceWriter


def emit_encoder(
    writer: SourceWriter, struct: StructSchema, window: VersionRange, *, is_flexible: bool
) -> None:
    """Write the functions that encode `struct` in the versions of `window`."""
    emitter = _EncoderEmitter(writer, struct, window, is_flexible)
    name = function_name("encode", struct, is_flexible=is_flexible)
    arguments = [f"message: {struct.class_name}", "parts: list[Buffer]"]
    if struct.has_records:
        arguments.append("segments: list[Segment]")
    writer.call(f"def {name}(", [*arguments, "version: int"], ") -> None:")
    with writer.indented():
        emitter.emit_body()
    writer.line()
    writer.line()
    if emitter.tagged:
        arguments = [f"message: {struct.class_name}", "parts: list[Buffer]", "version: int"]
        writer.call(f"def {name}_tags(", arguments, ") -> None:")
        with writer.indented():
            emitter.emit_tags_body()
        writer.line()
        writer.line()


def is_set(field: Field) -> str:
    """Return the test that `message.<field>` differs from its default."""
    value = f"message.{field.name}"
    default = default_value(field)
    if field.struct is not None and field.is_optional_struct:
        return f"{value} is not None and {value} != {field.struct.class_name}()"
    if default == "None":
        return f"{value} is not None"
    if default in ("[]", '""', 'b""', "False"):
        return value if field.nullable.is_empty else f"({value} is None or {value})"
    if default == "True":
        return f"not {value}"
    return f"{value} != {default}"


class _EncoderEmitter:
    """State of one generated function: adjacent fixed values whose code is not written yet."""

    def __init__(
        self, writer: SourceWriter, struct: StructSchema, window: VersionRange, is_flexible: bool
    ) -> None:
        self.writer = writer
        self.struct = struct
        self.window = window
        self.is_flexible = is_flexible
        self.run: list[tuple[str, str]] = []
        self.parts = "parts"
        self.tagged = [each for each in struct.fields if self._is_tag(each)]

    def _is_tag(self, field: Field) -> bool:
        return is_tag(field, self.window, is_flexible=self.is_flexible)

    def emit_body(self) -> None:
        plain = [each for each in self.struct.fields if not self._is_tag(each)]
        self.writer.line("append = parts.append")
        for condition, fields in groups(plain, self.window):
            if condition is None:
                self._emit_absent_checks(fields)
            elif condition == "":
                for field in fields:
                    self._emit_field(field)
            else:
                self._flush()
                with self.writer.block(f"if {condition}:"):
                    for field in fields:
                        self._emit_field(field)
                    self._flush()
                if any(not each.ignorable for each in fields):
                    with self.writer.block("else:"):
                        self._emit_absent_checks(fields)
        if self.is_flexible:
            self._emit_tags()
        self._flush()

    def _title(self, field: Field) -> str:
        return f"{self.struct.class_name}.{field.name}"

    def _emit_absent_checks(self, fields: list[Field]) -> None:
        for field in fields:
            if not field.ignorable:
                if "NULL_UUID" in default_value(field):
                    self.writer.use("NULL_UUID")
                with self.writer.block(f"if {is_set(field)}:"):
                    self._emit_not_carried(field)

    def _emit_not_carried(self, field: Field) -> None:
        self.writer.line(f'raise {self.writer.use("not_carried")}("{self._title(field)}", version)')

    def _emit_null_not_carried(self, field: Field) -> None:
        self.writer.line(
            f'raise {self.writer.use("null_not_carried")}("{self._title(field)}", version)'
        )

    def _flush(self) -> None:
        run, self.run = self.run, []
        if not run:
            return
        if run == [("0", "B")]:
            self.writer.line('append(b"\\0")')
            return
        constant = self.writer.format_constant([code for _, code in run])
        self.writer.call(f"append({constant}.pack(", [value for value, _ in run], "))")

    def _append_size(self, value: str, *, plain_code: str, function: str = "uvarint") -> None:
        """Write the length of `value`; a compact one as n + 1."""
        if not self.is_flexible:
            self.run.append((f"len({value})", plain_code))
            self._flush()
            return
        self._flush()
        self.writer.use("UVARINTS")
        self.writer.line(f"size = len({value}) + 1")
        self.writer.line(
            f"append(UVARINTS[size] if size < 128 else {self.writer.use(function)}(size))"
        )

    def _emit_field(self, field: Field) -> None:
        if field.fixed_format is not None:
            if field.type == "uuid":
                with self.writer.block(f"if len(message.{field.name}) != 16:"):
                    self.writer.line(
                        f'raise {self.writer.use("wrong_uuid")}("{self._title(field)}")'
                    )
            self.run.append((f"message.{field.name}", field.fixed_format))
            return
        nullable = field.nullable.condition(field.versions & self.window)
        is_known_to_be_set = self.parts != "parts" and default_value(field) == "None"
        if nullable is None and not field.nullable.is_empty:
            self._flush()
            with self.writer.block(f"if message.{field.name} is None:"):
                self._emit_null_not_carried(field)
        if nullable is None or is_known_to_be_set:
            self._emit_value(field)
            return
        self._flush()
        self.writer.line(f"{field.local} = message.{field.name}")
        with self.writer.block(f"if {field.local} is None:"):
            if nullable:
                with self.writer.block(f"if {negated(nullable)}:"):
                    self.writer.line(
                        f"raise {self.writer.use('null_not_carried')}"
                        f'("{self._title(field)}", version)'
                    )
            self.writer.line(f"append({self._null(field)})")
        with self.writer.block("else:"):
            self._emit_value(field, is_local=True)
            self._flush()

    def _null(self, field: Field) -> str:
        if field.struct is not None and not field.is_array:
            return 'b"\\xff"'
        if self.is_flexible:
            return 'b"\\0"'
        if field.type == "string" and not field.is_array:
            return 'b"\\xff\\xff"'
        return 'b"\\xff\\xff\\xff\\xff"'

    def _emit_value(self, field: Field, *, is_local: bool = False) -> None:
        if field.is_array:
            self._emit_array(field, is_local=is_local)
        elif field.struct is not None:
            self._emit_struct(field, field.struct, is_local=is_local)
        elif field.type == "string":
            source = field.local if is_local else f"message.{field.name}"
            self.writer.line(f"text = {source}.encode()")
            self._append_size("text", plain_code="h", function="string_size")
            self.writer.line("append(text)")
        else:
            self._bind(field, is_local=is_local)
            self._append_size(field.local, plain_code="i")
            if field.type == "records":
                if self.parts != "parts":
                    raise SchemaError(f"{self._title(field)}: records in a tag")
                self.writer.line(
                    f"{self.writer.use('append_records')}({field.local}, parts, segments)"
                )
            else:
                self.writer.line(f"append({field.local})")

    def _bind(self, field: Field, *, is_local: bool) -> None:
        if not is_local:
            self.writer.line(f"{field.local} = message.{field.name}")

    def _emit_struct_call(self, struct: StructSchema, value: str) -> None:
        function = function_name("encode", struct, is_flexible=self.is_flexible)
        if struct.has_records and self.parts != "parts":
            raise SchemaError(f"{self.struct.class_name}: records in a tag")
        segments = ["segments"] if struct.has_records else []
        self.writer.call(f"{function}(", [value, self.parts, *segments, "version"])

    def _emit_struct(self, field: Field, struct: StructSchema, *, is_local: bool) -> None:
        if is_local:
            if self.parts != "parts":
                raise SchemaError(f"{self._title(field)}: a nullable struct in a tag")
            self.writer.line('append(b"\\x01")')
        self._flush()
        value = field.local if is_local else f"message.{field.name}"
        self._emit_struct_call(struct, value)

    def _emit_array(self, field: Field, *, is_local: bool) -> None:
        writer = self.writer
        code = FIXED_FORMATS.get(field.type)
        if code is not None and code != "16s":
            self._flush()
            source = field.local if is_local else f"message.{field.name}"
            prefix = "compact_" if self.is_flexible else ""
            if code == "i":
                writer.line(f"append({writer.use(f'{prefix}int32_array')}({source}))")
            else:
                writer.line(f'append({writer.use(f"{prefix}array")}("{code}", {source}))')
            return
        self._bind(field, is_local=is_local)
        self._append_size(field.local, plain_code="i")
        element = f"{field.local}_element"
        with writer.block(f"for {element} in {field.local}:"):
            if field.struct is not None:
                self._emit_struct_call(field.struct, element)
            elif code == "16s":
                with writer.block(f"if len({element}) != 16:"):
                    writer.line(f'raise {writer.use("wrong_uuid")}("{self._title(field)}")')
                writer.line(f"append({element})")
            else:
                writer.line(f"text = {element}.encode()")
                self._append_size("text", plain_code="h", function="string_size")
                writer.line("append(text)")

    def _emit_tags(self) -> None:
        if not self.tagged:
            self.run.append(("0", "B"))
            return
        self._flush()
        name = function_name("encode", self.struct, is_flexible=True)
        for field in self.tagged:
            if "NULL_UUID" in default_value(field):
                self.writer.use("NULL_UUID")
        tests = [is_set(each) for each in self.tagged]
        tests = [f"({each})" if " and " in each else each for each in tests]
        one_line = f"if {' or '.join(tests)}:"
        if len(one_line) + 4 <= 100:
            self.writer.line(one_line)
        else:
            self.writer.line("if (")
            self.writer.line(f"    {tests[0]}")
            for test in tests[1:]:
                self.writer.line(f"    or {test}")
            self.writer.line("):")
        self.writer.line(f"    {name}_tags(message, parts, version)")
        with self.writer.block("else:"):
            self.writer.line('append(b"\\0")')

    def emit_tags_body(self) -> None:
        """Write the function that encodes the tagged fields that differ from their defaults.

        Most messages have none to send, so the fields have their own function.
        """
        writer = self.writer
        self.parts = "payload"
        writer.line("payloads: list[tuple[int, list[Buffer]]] = []")
        writer.line("payload: list[Buffer]")
        for field in sorted(self.tagged, key=lambda each: each.tag):
            condition = (field.tagged & field.versions).condition(self.window)
            test = is_set(field)
            if condition and field.ignorable:
                test = f"{condition} and {test}"
            with writer.block(f"if {test}:"):
                if condition and not field.ignorable:
                    with writer.block(f"if {negated(condition)}:"):
                        self._emit_not_carried(field)
                writer.line("payload = []")
                writer.line("append = payload.append")
                self._emit_field(field)
                self._flush()
                writer.line(f"payloads.append(({field.tag}, payload))")
        writer.line(f"{writer.use('append_tags')}(parts, payloads)")
