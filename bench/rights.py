"""`python -m bench.rights`: a broker with 10,000 ACLs beside one without an authorizer, in turn within each round.

Clients of the first are allowed by one of the ACLs, and are no super users. A ratio is taken within a round; more than
1 is better for the broker with ACLs.
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from chronik.bench import consume, produce
from chronik.bench.clients import ensure_topic, unique_name
from chronik.bench.consume import ConsumeLoad
from chronik.bench.produce import ProduceLoad
from chronik.bench.report import number
from chronik.bench.rounds import in_turn, markdown_table, median_ratio
from chronik.client.cluster import Cluster
from chronik.client.security.acls import AclBinding, AclFilter, add_acls, list_acls
from chronik.protocol.permissions import CLUSTER_NAME, Operation, ResourceType
from chronik.testing import Broker

NONE, MANY = "no authorizer", "10,000 ACLs"
ACLS: Final = 10_000
PORTION: Final = 1000
ANONYMOUS: Final = "User:ANONYMOUS"
LITERAL, PREFIXED, ALLOW = 3, 4, 3
AUTHORIZER: Final = {"authorizer.class.name": "standard"}
OWN: Final = [
    AclBinding(ResourceType.TOPIC, "chronik-bench-", PREFIXED, ANONYMOUS, "*", Operation.ALL, ALLOW),
    AclBinding(ResourceType.CLUSTER, CLUSTER_NAME, LITERAL, ANONYMOUS, "*", Operation.CREATE, ALLOW),
    AclBinding(ResourceType.GROUP, "*", LITERAL, ANONYMOUS, "*", Operation.ALL, ALLOW),
]

Figures = dict[str, dict[str, list[float]]]
"""Figure → broker → a value for each round."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.rights")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--size", type=int, default=1000)
    arguments = parser.parse_args()
    figures: Figures = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="chronik-rights-")))
        brokers = {NONE: stack.enter_context(Broker(flush="os")), MANY: stack.enter_context(_guarded(folder))}
        for round_number in range(arguments.rounds):
            for name in in_turn([NONE, MANY], round_number):
                for what, value in _measured(brokers[name], arguments.records, arguments.size).items():
                    figures.setdefault(what, {NONE: [], MANY: []})[name].append(value)
    rows = [[what, number(median_ratio(values[MANY], values[NONE]))] for what, values in figures.items()]
    print(markdown_table([f"{MANY} beside {NONE}", "median ratio"], rows))


def _measured(broker: Broker, records: int, size: int) -> dict[str, float]:
    topic = unique_name("rights")
    with Cluster(broker.bootstrap) as cluster:
        ensure_topic(cluster, topic, 1)
    written = produce.measure(ProduceLoad(broker.bootstrap, topic, records, size, broker_pid=broker.pid))
    read = consume.measure(ConsumeLoad(broker.bootstrap, topic, 1, records, broker_pid=broker.pid))
    assert written.broker_cpu_s_per_million
    assert read.broker_cpu_s_per_million
    return {
        "produce, records a second": written.records_per_second,
        "fetch, records a second": read.records_per_second,
        "produce, records per broker CPU": 1 / written.broker_cpu_s_per_million,
        "fetch, records per broker CPU": 1 / read.broker_cpu_s_per_million,
    }


def _guarded(folder: Path) -> Broker:
    """Makes the ACLs while everybody may do everything, and then starts the broker again."""
    others = [
        AclBinding(ResourceType.TOPIC, f"t{each}", LITERAL + each % 2, f"User:u{each}", "*", Operation.READ, ALLOW)
        for each in range(ACLS - len(OWN))
    ]
    with Broker(folder, flush="os", broker={**AUTHORIZER, "super.users": ANONYMOUS}) as broker:
        with Cluster(broker.bootstrap) as cluster:
            for first in range(0, len(others), PORTION):
                add_acls(cluster, others[first : first + PORTION])
            add_acls(cluster, OWN)
            assert len(list_acls(cluster, AclFilter())) == ACLS
        broker.stop()
    return Broker(folder, flush="os", broker=AUTHORIZER)


if __name__ == "__main__":
    main()
