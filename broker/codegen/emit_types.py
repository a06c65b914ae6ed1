"""Writes the dataclasses: one per message and nested struct, for all versions together."""

from codegen.schema import Field, MessageSchema, StructSchema, snake_case
from codegen.versions import VersionRange
from codegen.writer import LINE_MAX, SourceWriter

_SCALARS = {"bool": "bool", "float64": "float", "string": "str", "uuid": "bytes"}


def element_type(field: Field, kind: str) -> str:
    """Return the type of one value of the field, without list and None."""
    if field.struct is not None:
        return field.struct.class_name
    if field.type == "records":
        # A request's records were received; a response's records may still be in a file.
        return "Buffer" if kind == "request" else "Records"
    if field.type == "bytes":
        return "Buffer"
    return _SCALARS.get(field.type, "int")


def annotation(field: Field, kind: str) -> str:
    text = element_type(field, kind)
    if field.is_array:
        text = f"list[{text}]"
    if not field.nullable.is_empty or field.is_optional_struct:
        text += " | None"
    return text


def default_value(field: Field) -> str:
    """Return the default as an expression; arrays and structs need a new object each time."""
    if field.default == "null" or field.is_optional_struct or field.type == "records":
        return "None"
    if field.is_array:
        return "[]"
    if field.struct is not None:
        return f"{field.struct.class_name}()"
    if field.type == "string":
        return f'"{field.default or ""}"'
    if field.type == "bytes":
        return 'b""'
    if field.type == "bool":
        return "True" if field.default == "true" else "False"
    if field.type == "uuid":
        return "NULL_UUID"
    if field.type == "float64":
        return repr(float(field.default or 0))
    return str(int(field.default or "0", 0))


def emit_class(
    writer: SourceWriter, struct: StructSchema, message: MessageSchema, *, is_root: bool
) -> None:
    writer.line("@dataclass(slots=True, eq=False, repr=False)")
    with writer.block(f"class {struct.class_name}({'Message' if is_root else 'WireStruct'}):"):
        writer.line(f'"""{_description(struct, message, is_root=is_root)}"""')
        writer.line()
        if is_root:
            flexible = message.flexible_window
            writer.line(f"API_KEY: ClassVar[int] = {message.api_key}")
            valid = message.valid
            writer.line(f"VALID_VERSIONS: ClassVar[tuple[int, int]] = ({valid.low}, {valid.high})")
            first = "None" if flexible.is_empty else flexible.low
            writer.line(f"FLEXIBLE_FROM: ClassVar[int | None] = {first}")
            writer.line()
        for field in struct.fields:
            _emit_field(writer, field, message)
        if is_root:
            writer.line()
            _emit_decode_method(writer, struct, message)
            writer.line()
            _emit_encode_method(writer, struct, message)
    writer.line()
    writer.line()


def _description(struct: StructSchema, message: MessageSchema, *, is_root: bool) -> str:
    if not is_root:
        return f"A part of {message.root.class_name}."
    valid = message.valid
    unstable = f"; version {valid.high} is not stable yet" if message.is_latest_unstable else ""
    versions = f"version {valid.low}" if valid.low == valid.high else f"versions {valid.low}"
    until = "" if valid.low == valid.high else f" to {valid.high}"
    return f"{struct.class_name} (key {message.api_key}), {versions}{until}{unstable}."


def _emit_field(writer: SourceWriter, field: Field, message: MessageSchema) -> None:
    default = default_value(field)
    if default == "[]":
        default = "field(default_factory=list)"
    elif default.endswith("()"):
        default = f"field(default_factory={default[:-2]})"
    elif default == "NULL_UUID":
        writer.use("NULL_UUID")
    comment = _version_comment(field, message.valid)
    text = f"{field.name}: {annotation(field, message.kind)} = {default}"
    if comment and len(text) + len(comment) + 4 * writer.depth + 4 > LINE_MAX:
        writer.line(f"# {comment}")
        comment = ""
    writer.line(f"{text}  # {comment}" if comment else text)


def _version_comment(field: Field, valid: VersionRange) -> str:
    notes = []
    inside = field.versions & valid
    if inside != valid:
        if inside.low == inside.high:
            notes.append(f"v{inside.low}")
        elif inside.high == valid.high:
            notes.append(f"v{inside.low}+")
        else:
            notes.append(f"v{inside.low}-{inside.high}")
    nullable = field.nullable & inside
    if not nullable.is_empty and nullable != inside:
        notes.append(f"null from v{nullable.low}")
    if field.is_tagged:
        notes.append(f"tag {field.tag}")
    if field.ignorable and inside != valid:
        notes.append("ignorable")
    return ", ".join(notes)


def _emit_decode_method(writer: SourceWriter, struct: StructSchema, message: MessageSchema) -> None:
    valid = message.valid
    name = struct.class_name
    writer.line("@classmethod")
    arguments = "cls, buffer: memoryview, position: int, version: int"
    writer.call("def decode(", arguments.split(", "), f') -> tuple["{name}", int]:')
    with writer.indented():
        with writer.block(f"if not {valid.low} <= version <= {valid.high}:"):
            writer.line(f'raise {writer.use("unknown_version")}("{name}", version)')
        if message.kind == "request":
            writer.line(f"{writer.use('begin_elements')}()")
        with writer.block("try:"):
            _emit_dispatch(writer, struct, message, "message, position = ", "decode")
        with writer.block(f"except {writer.use('DECODE_ERRORS')} as error:"):
            writer.line(f'raise {writer.use("malformed")}("{name}", version, error) from error')
        with writer.block("if position > len(buffer):"):
            writer.line(f'raise {writer.use("truncated")}("{name}", version)')
        writer.line("return message, position")


def _emit_encode_method(writer: SourceWriter, struct: StructSchema, message: MessageSchema) -> None:
    valid = message.valid
    name = struct.class_name
    with writer.block("def encode(self, version: int) -> list[Segment]:"):
        with writer.block(f"if not {valid.low} <= version <= {valid.high}:"):
            writer.line(f'raise {writer.use("no_such_version")}("{name}", version)')
        writer.line("parts: list[Buffer] = []")
        if struct.has_records:
            writer.line("segments: list[Segment] = []")
        with writer.block("try:"):
            _emit_dispatch(writer, struct, message, "", "encode")
        with writer.block(f"except {writer.use('ENCODE_ERRORS')} as error:"):
            writer.line(f'raise {writer.use("not_encodable")}("{name}", version, error) from error')
        if struct.has_records:
            writer.line('segments.append(b"".join(parts))')
            writer.line("return segments")
        else:
            writer.line('return [b"".join(parts)]')


def _emit_dispatch(
    writer: SourceWriter, struct: StructSchema, message: MessageSchema, target: str, verb: str
) -> None:
    arguments = ["buffer", "position", "version"]
    if verb == "encode":
        arguments = ["self", "parts", *(["segments"] if struct.has_records else []), "version"]
    plain = f"{target}{function_name(verb, struct, is_flexible=False)}("
    flexible = f"{target}{function_name(verb, struct, is_flexible=True)}("
    if message.flexible_window.is_empty:
        writer.call(plain, arguments)
    elif message.plain_window.is_empty:
        writer.call(flexible, arguments)
    else:
        with writer.block(f"if version >= {message.flexible_window.low}:"):
            writer.call(flexible, arguments)
        with writer.block("else:"):
            writer.call(plain, arguments)


def function_name(verb: str, struct: StructSchema, *, is_flexible: bool) -> str:
    suffix = "_flexible" if is_flexible else ""
    return f"_{verb}_{snake_case(struct.class_name)}{suffix}"
