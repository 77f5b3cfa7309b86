"""A server that changes what it sends, and parties of which the first has a policy."""

from flwr.app import ConfigRecord, Message, RecordDict

from flwr_causal.app.methods import CLIENTS
from flwr_causal.clients import Source, client_app
from flwr_causal.party.record import PartyRecord
from flwr_causal.protocol import records
from flwr_causal.simulations import LocalGrid
from flwr_causal.simulations.relay import Relay


class Tampering(Relay):
    """A grid whose messages hold other plain values: ``change(config, message_type)``.

    What ``change`` returns takes the place of the values; None leaves them.
    """

    def __init__(self, grid, change):
        super().__init__(grid)
        self.change, self.replies = change, []

    def before(self, messages):
        return [self.changed(message) for message in messages]

    def after(self, messages, replies):
        self.replies += replies
        return replies

    def changed(self, message):
        config = self.change(records.config_of(message.content), message.metadata.message_type)
        if config is None:
            return message
        content = RecordDict({**message.content, records.CONFIG: ConfigRecord(config)})
        meta = message.metadata
        return Message(
            content=content,
            dst_node_id=meta.dst_node_id,
            message_type=meta.message_type,
            ttl=meta.ttl,
            group_id=meta.group_id,
        )


def guarded(tables, directory, policy, **node):
    """The nodes of parties in memory; the first one has a policy, and a record beside it."""
    (directory / "policy.toml").write_text(policy)
    configs = [{"name": f"party {k}", "data-path": "/a.csv"} for k in range(len(tables))]
    configs[0] |= {"policy": str(directory / "policy.toml"), **node}

    def source(context):
        name = str(context.node_config["name"])
        return Source(name, lambda: tables[int(name[-1])])

    return LocalGrid(client_app(CLIENTS, source), len(tables), node_configs=configs)


def recorded(directory):
    """The lines of the record beside the policy."""
    return PartyRecord(directory / "record.jsonl").lines()


def sent(directory, *exchanges):
    """The lines of what left in these exchanges; of all without any."""
    return [
        line
        for line in recorded(directory)
        if line["event"] == "sent" and (not exchanges or line["exchange"] in exchanges)
    ]
