"""YAML in which a key occurs once: of two, the reader would silently take the last.

Nesting deeper than in any manifest is an error, too: the reader, or code that prints or compares
the value, would exceed the stack.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

MERGE_TAG = "tag:yaml.org,2002:merge"
NESTING_MAX: Final = 100


class StrictLoader(yaml.SafeLoader):
    """Reads plain values only, as `yaml.SafeLoader`; a repeated key is an error."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node; yaml.MarkedYAMLError if it is nested too deeply."""
        if self._depth == NESTING_MAX:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem="it is nested too deeply", problem_mark=mark)
        self._depth += 1
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Return the value; yaml.MarkedYAMLError for a date or number that there is not."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError) as error:
            # The reader takes 2013-02-30 for a date, and fails as Python does.
            raise yaml.MarkedYAMLError(
                problem="it is no value of this kind, or too large",
                problem_mark=node.start_mark,
            ) from error

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return the mapping; yaml.MarkedYAMLError names the place of a repeated key."""
        seen: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGE_TAG:
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(
                    problem=f"'{key.value}' stands twice", problem_mark=key.start_mark
                )
            seen.add(key.value)
        return super().construct_mapping(node, deep)
