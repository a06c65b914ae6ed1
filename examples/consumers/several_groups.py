"""Several groups: every group gets every flight, the members of one group share them.

    python examples/consumers/several_groups.py --group billing:3 --group audit:1 --idle-s 5

At most as many members of a group work as the topic has partitions; further ones stand by. Members
are tasks of one process here (aiokafka); elsewhere they are processes, or pods.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import signal
import sys
import time

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, KafkaConnectionError, KafkaError

log = logging.getLogger("several_groups")


class Member(ConsumerRebalanceListener):
    """One consumer, with the number of its records."""

    def __init__(self, arguments: argparse.Namespace, group: str, number: int) -> None:
        self.topic = arguments.topic
        self.name = f"{group}/{number}"
        self.flights = 0
        self.partitions: list[int] = []
        self.last_record = time.monotonic()
        self.consumer = AIOKafkaConsumer(
            bootstrap_servers=arguments.bootstrap,
            group_id=group,
            client_id=f"{group}-{number}",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            # A member learns of a rebalance from a heartbeat.
            heartbeat_interval_ms=500,
        )

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Note the present assignment after each rebalance."""
        self.partitions = sorted(at.partition for at in assigned)
        self.last_record = time.monotonic()
        log.info("%s has partitions %s", self.name, self.partitions or "none: it stands by")

    async def on_partitions_revoked(self, _revoked: set[TopicPartition]) -> None:
        """Do nothing before a rebalance: all records that were read are committed already."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Join, poll, work and commit until a signal."""
        self.consumer.subscribe([self.topic], listener=self)
        # Leaves the group at the end, in every case.
        async with self.consumer:
            while not stopping.is_set():
                taken = await self.consumer.getmany(timeout_ms=200, max_records=500)
                if not taken:
                    continue
                self.last_record = time.monotonic()
                # The work would be here. The commit follows it: at least once.
                after = {at: records[-1].offset + 1 for at, records in taken.items()}
                try:
                    await self.consumer.commit(after)
                except CommitFailedError:
                    log.warning("%s lost its partitions; others do these again", self.name)
                    continue
                self.flights += sum(map(len, taken.values()))


async def run(arguments: argparse.Namespace) -> None:
    """Run all members of all groups until a signal or silence; then print what each has done."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    members = [
        Member(arguments, group, number)
        for group, size in arguments.groups
        for number in range(size)
    ]
    # If one fails, the others are cancelled and leave their groups, and its error is raised here.
    async with asyncio.TaskGroup() as tasks:
        for member in members:
            tasks.create_task(member.run(stopping))
        while not stopping.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), 0.1)
            silence_s = time.monotonic() - max(each.last_record for each in members)
            if arguments.idle_s and silence_s > arguments.idle_s:
                stopping.set()
        # Taken now: a member that leaves gives its partitions to those that still run.
        shares = {member.name: member.partitions for member in members}
    for member in members:
        print(f"{member.name} {member.flights} flights, partitions {shares[member.name]}")
    for group, size in arguments.groups:
        mine = [member for member in members if member.name.rpartition("/")[0] == group]
        print(f"group {group}: {sum(member.flights for member in mine)} flights by {size} members")


def group_and_size(text: str) -> tuple[str, int]:
    """Parse `billing:3`, a group of three members."""
    name, _, size = text.rpartition(":")
    if not name or not size.isdigit() or int(size) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME:MEMBERS, such as billing:3")
    return name, int(size)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--bootstrap", default="localhost:9092", metavar="HOST:PORT")
    add("--topic", default="flights")
    add("--group", dest="groups", type=group_and_size, action="append", metavar="NAME:MEMBERS")
    add("--idle-s", type=float, help="end after this long without a record (default: never)")
    arguments = parser.parse_args()
    arguments.groups = arguments.groups or [("billing", 3), ("audit", 1)]
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.WARNING)
    problem = ""
    try:
        asyncio.run(run(arguments))
    except* KafkaConnectionError:
        problem = f"No cluster answers at {arguments.bootstrap}. Start one:  fairlead up --detach"
    except* KafkaError as errors:
        problem = problem or f"Stopped: {errors.exceptions[0]}"
    # Not in the clauses: Python 3.11.2 puts what they raise into a group again.
    if problem:
        sys.exit(problem)


if __name__ == "__main__":
    main()
