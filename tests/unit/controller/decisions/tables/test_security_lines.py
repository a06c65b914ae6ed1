"""Rules, credentials and quotas in tables: planned, written and read back."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, cast

import pytest

from fairlead_controller.decisions.state import CountersChanged, DeclaredUser, UserDeclared
from fairlead_controller.decisions.tables import lines
from fairlead_controller.decisions.tables.loading import load_state
from fairlead_controller.decisions.tables.security_lines import (
    SECURITY_TABLE_BYTES_MAX,
    acl_key,
    credential_key,
    parse_acl_key,
    parse_quota_key,
    quota_key,
    security_table_name,
)
from fairlead_controller.decisions.tables.stored_table import StoreCorruptError, StoredTable
from fairlead_controller.decisions.tables.table_plan import (
    CLUSTER_TABLE,
    TableLayout,
    WritePlan,
    first_lines,
)
from fairlead_controller.decisions.tables.table_room import TableRoom
from fairlead_model.cluster import AclChanged, ClientQuotaChanged, CredentialChanged
from fairlead_model.security.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from fairlead_model.security.client_quota import quota_entity
from fairlead_model.security.scram import ScramCredential, ScramMechanism
from fairlead_model.session.refusals import RefusalCode, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from fairlead_controller.decisions.tables.table_plan import Stage
    from fairlead_model.cluster import Change
    from fairlead_model.security.client_quota import QuotaEntity, Quotas

STRANGE = ("a b\n/%", "*", "User:x", "\u00e4\U0001f600", "..", "a" * 999)
CREDENTIAL = ScramCredential(ScramMechanism.SCRAM_SHA_512, 8192, b"s" * 20, b"k" * 64, b"v" * 64)


def rule(name: str, number: int = 0) -> AclBinding:
    return AclBinding(
        ResourceType.TOPIC,
        PatternType.PREFIXED,
        name,
        f"User:{name or 'x'}"[:1000],
        "*",
        Operation.READ,
        Permission.DENY,
    )


class Tables:
    """A store of tables, filled by plans."""

    def __init__(self) -> None:
        first = first_lines("cluster-id", CountersChanged(1, 0))
        self.lines: dict[str, dict[str, str]] = {CLUSTER_TABLE: dict(first)}  # type: ignore[arg-type]

    def stored(self) -> dict[str, StoredTable]:
        return {name: StoredTable("1", 1, 0, table) for name, table in self.lines.items()}

    def loaded(self) -> tuple[set[AclBinding], dict[tuple[ScramMechanism, str], ScramCredential]]:
        image = load_state(self.stored(), controller_epoch=1).state.image
        return set(image.acls), dict(image.credentials)

    def quotas(self) -> dict[QuotaEntity, Quotas]:
        return dict(load_state(self.stored(), controller_epoch=1).state.image.client_quotas)

    def layout(self) -> TableLayout:
        return load_state(self.stored(), controller_epoch=1).layout

    def write(self, layout: TableLayout, changes: Iterable[Change]) -> list[Stage]:
        plan = WritePlan(layout)
        plan.add(cast("list[Any]", changes))
        stages = plan.stages()
        for stage in stages:
            self.write_stage(stage)
        return stages

    def write_stage(self, stage: Stage) -> None:
        for name, table in stage.items():
            held = self.lines.setdefault(name, {})
            for key, line in table.items():
                if line is None:
                    held.pop(key, None)
                else:
                    held[key] = line


@pytest.mark.parametrize("name", STRANGE)
def test_keys_of_rules_say_it_all_and_have_no_blank(name: str) -> None:
    key = acl_key(rule(name))
    assert " " not in key
    assert "\n" not in key
    assert parse_acl_key(key) == rule(name)


@pytest.mark.parametrize("name", (*STRANGE, None))
def test_keys_of_quotas_tell_a_default_from_one_who_is_called_so(name: str | None) -> None:
    for entity in (
        (("user", name),),
        (("client-id", name),),
        (("user", name), ("client-id", None)),
        (("user", "a/b"), ("client-id", name)),
    ):
        key = quota_key(entity)
        assert " " not in key
        assert "\n" not in key
        assert parse_quota_key(key) == entity


@pytest.mark.parametrize(
    "key", ["quota/", "quota/user", "quota/user/", "quota/group/a", "quota/ip/a"]
)
def test_quotas_of_nobody_are_an_error(key: str) -> None:
    with pytest.raises(StoreCorruptError, match="quota"):
        parse_quota_key(key)


def test_a_quota_of_a_newer_release_stays_when_another_changes() -> None:
    tables = Tables()
    entity = (("user", "a"),)
    newer = {"byte_rate_of_the_future": 7.0, "request_percentage": 1.0}
    tables.write(tables.layout(), [ClientQuotaChanged(entity, newer)])
    tables.write(tables.layout(), [ClientQuotaChanged(entity, newer | {"request_percentage": 2.0})])
    assert tables.quotas() == {entity: {"byte_rate_of_the_future": 7.0, "request_percentage": 2.0}}
    tables.write(tables.layout(), [ClientQuotaChanged(entity, {})])
    assert tables.quotas() == {}


def test_what_was_written_in_any_order_is_what_is_read() -> None:
    chance = random.Random(5)
    tables = Tables()
    layout = tables.layout()
    rules: set[AclBinding] = set()
    credentials: dict[tuple[ScramMechanism, str], ScramCredential] = {}
    for _ in range(200):
        name = chance.choice(STRANGE) + str(chance.randrange(4))
        name = name[-900:]
        mechanism = CREDENTIAL.mechanism
        match chance.randrange(4):
            case 0:
                change: Change = AclChanged(rule(name))
                rules.add(rule(name))
            case 1:
                change = AclChanged(rule(name), is_removed=True)
                rules.discard(rule(name))
            case 2:
                change = CredentialChanged(name, mechanism, CREDENTIAL)
                credentials[mechanism, name] = CREDENTIAL
            case _:
                change = CredentialChanged(name, mechanism, None)
                credentials.pop((mechanism, name), None)
        tables.write(layout, [change])
        if chance.random() < 0.2:
            layout = tables.layout()
        assert tables.loaded() == (rules, credentials)
    assert rules
    assert credentials


def test_tables_fill_one_after_another_and_what_is_freed_is_filled_again() -> None:
    tables = Tables()
    layout = tables.layout()
    many = [rule(f"{number:05d}{'x' * 700}") for number in range(400)]
    tables.write(layout, map(AclChanged, many))
    names = [name for name in tables.lines if name.startswith("security-")]
    assert len(names) > 2
    assert all(size <= SECURITY_TABLE_BYTES_MAX for size in layout.security.sizes.values())
    assert tables.loaded()[0] == set(many)
    held = layout.security.numbers
    first = [each for each in many if held[acl_key(each)] == 0]
    tables.write(layout, [AclChanged(each, is_removed=True) for each in first])
    tables.write(layout, [AclChanged(rule("short"))])
    assert layout.security.numbers[acl_key(rule("short"))] == 0
    assert layout.security.sizes == tables.layout().security.sizes


def test_a_rule_that_a_crash_left_in_two_tables_is_gone_once_it_is_removed() -> None:
    """It was removed and added again in one batch, and found room in another table."""
    tables = Tables()
    many = [rule(f"{number:05d}{'x' * 700}") for number in range(400)]
    tables.write(tables.layout(), map(AclChanged, many))
    tables.write(tables.layout(), [AclChanged(many[0], is_removed=True)])
    layout = tables.layout()
    moving = many[-1]
    before = security_table_name(layout.security.numbers[acl_key(moving)])
    plan = WritePlan(layout)
    plan.add([AclChanged(moving, is_removed=True), AclChanged(moving)])
    (stage,) = plan.stages()
    after = security_table_name(0)
    assert set(stage) == {before, after}
    tables.write_stage({after: stage[after]})  # A crash: the other table is not written.

    loaded = load_state(tables.stored(), controller_epoch=2)
    tables.write_stage(loaded.repairs)
    tables.write(loaded.layout, [AclChanged(moving, is_removed=True)])
    assert moving not in tables.loaded()[0]
    assert loaded.layout.security.sizes == tables.layout().security.sizes


def test_a_table_is_named_before_it_is_made_and_missed_once_it_was() -> None:
    tables = Tables()
    stages = tables.write(tables.layout(), [AclChanged(rule("t"))])
    name = security_table_name(0)
    assert [sorted(stage) for stage in stages] == [[CLUSTER_TABLE], [name], [CLUSTER_TABLE]]
    del tables.lines[name]
    with pytest.raises(StoreCorruptError, match="rules and users would be lost"):
        tables.layout()
    # A crash after the first stage: nobody was told that the rule holds.
    crashed = Tables()
    crashed.write_stage(stages[0])
    loaded = load_state(crashed.stored(), controller_epoch=1)
    assert loaded.missing_tables == (name,)


def test_a_damaged_rule_or_credential_is_an_error_that_shows_no_key() -> None:
    tables = Tables()
    tables.write(tables.layout(), [CredentialChanged("u", CREDENTIAL.mechanism, CREDENTIAL)])
    held = tables.lines[security_table_name(0)]
    key = credential_key("u", CREDENTIAL.mechanism)
    record = lines.read_line(held[key])
    held[key] = lines.dump_line(record | {"stored_key": record["stored_key"][:-8] + "!!!!!!!!"})
    with pytest.raises(StoreCorruptError, match="scram/u") as caught:
        tables.loaded()
    assert record["stored_key"][:20] not in str(caught.value)
    held[key] = lines.dump_line(record)
    held["acl/TOPIC/LITERAL/t/User:x/*/FLY/ALLOW"] = "{}"
    with pytest.raises(StoreCorruptError, match="FLY"):
        tables.loaded()


def test_lines_of_another_kind_stay_where_they_are() -> None:
    tables = Tables()
    layout = tables.layout()
    tables.write(layout, [AclChanged(rule("t"))])
    tables.lines[security_table_name(0)]["later/x"] = '{"of":"another release"}'
    assert tables.loaded()[0] == {rule("t")}
    tables.write(tables.layout(), [AclChanged(rule("u"))])
    assert tables.lines[security_table_name(0)]["later/x"] == '{"of":"another release"}'


def test_more_than_tables_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Tables().layout()
    monkeypatch.setattr(
        "fairlead_controller.decisions.tables.table_room._SECURITY_BYTES_MAX", 1_000
    )
    room = TableRoom(layout)
    room.take([AclChanged(rule("a" * 300))])
    with pytest.raises(RefusedError) as caught:
        room.take([AclChanged(rule("b" * 300))])
    assert caught.value.code == RefusalCode.POLICY_VIOLATION
    room.take([AclChanged(rule("c" * 900), is_removed=True)])


@pytest.mark.parametrize("is_last_first", [False, True])
def test_no_quota_that_a_resource_let_go_of_outlives_its_declaration(is_last_first: bool) -> None:
    """A crash between two tables would else leave a quota that nobody takes away."""
    tables = Tables()
    layout = tables.layout()
    entity = quota_entity([("user", "app")])
    fill = [rule(f"{number:05d}{'x' * 700}") for number in range(400)]
    with_quotas = DeclaredUser("User:app", "1", {"producer_byte_rate": 5.0}, True)
    for changes in (
        [UserDeclared("app", with_quotas), *map(AclChanged, fill)],
        [ClientQuotaChanged(entity, {"producer_byte_rate": 5.0})],
        [
            UserDeclared("app", DeclaredUser("User:app", "1"), lets_go=True),
            ClientQuotaChanged(entity, {}),
        ],
    ):
        plan = WritePlan(layout)
        plan.add(cast("list[Any]", changes))
        for stage in plan.stages():
            for name in sorted(stage, reverse=is_last_first):
                tables.write_stage({name: stage[name]})
                state = load_state(tables.stored(), controller_epoch=1).state
                if entity in state.image.client_quotas:
                    assert dict(state.users) == {"app": with_quotas}
    assert not state.image.client_quotas
    assert dict(state.users) == {"app": DeclaredUser("User:app", "1")}


@pytest.mark.parametrize("is_last_first", [False, True])
def test_no_right_of_a_resource_is_ever_stored_without_its_declaration(
    is_last_first: bool,
) -> None:
    """The tables of one stage are written side by side: any of them may be the first."""
    tables = Tables()
    layout = tables.layout()
    fill = [rule(f"{number:05d}{'x' * 700}") for number in range(200)]
    mine = rule("orders")
    declared = UserDeclared("app", DeclaredUser(mine.principal, "1"))
    gone = UserDeclared("app", None)
    for changes in (
        [declared, *map(AclChanged, fill), AclChanged(mine)],
        [AclChanged(mine, is_removed=True), gone],
        # Where it stood first there is no room any more, so its line moves to another table.
        [declared, AclChanged(mine)],
        [gone, *(AclChanged(rule(f"{each}{'y' * 700}")) for each in range(200)), declared],
        [AclChanged(mine, is_removed=True), gone],
    ):
        plan = WritePlan(layout)
        plan.add(cast("list[Any]", changes))
        writes = [
            {name: stage[name]}
            for stage in plan.stages()
            for name in sorted(stage, reverse=is_last_first)
        ]
        for write in writes:
            tables.write_stage(write)
            state = load_state(tables.stored(), controller_epoch=1).state
            if mine in state.image.acls:
                assert dict(state.users) == {"app": declared.user}
                assert dict(state.principals) == {mine.principal: "app"}
        lines_of_it = [key for table in tables.lines.values() for key in table if "user/" in key]
        assert len(lines_of_it) == (changes[-1] is not gone)
    assert not state.users
    assert not state.principals
