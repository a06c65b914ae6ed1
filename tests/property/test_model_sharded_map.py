from hypothesis import given
from hypothesis import strategies as st

from fairlead_model.sharded_map import ShardedMap

KEYS = st.integers(0, 2000)
EDITS = st.lists(st.dictionaries(KEYS, st.none() | st.integers(), max_size=8), max_size=12)


@given(EDITS)
def test_it_behaves_as_a_dict_that_is_copied_on_each_edit(
    edits: list[dict[int, int | None]],
) -> None:
    model: dict[int, int] = {}
    current: ShardedMap[int, int] = ShardedMap()
    history = [(current, dict(model))]
    for edit in edits:
        current = current.edited(edit)
        for key, value in edit.items():
            if value is None:
                model.pop(key, None)
            else:
                model[key] = value
        history.append((current, dict(model)))
    for snapshot, expected in history:
        assert dict(snapshot) == expected
        assert len(snapshot) == len(expected)
        assert all(key in snapshot for key in expected)
        assert -1 not in snapshot
