from fairlead_model.session.refusals import RefusalCode
from fairlead_wire.errors import ErrorCode


def test_refusal_codes_are_those_of_the_wire() -> None:
    for code in RefusalCode:
        assert ErrorCode[code.name].value == code.value
