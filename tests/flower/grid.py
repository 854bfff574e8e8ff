"""A grid in this process: nodes are contexts, and a message is a call of the client app.

It sets what Flower's runtime sets (`TaskIdentity`, ids of messages): the one place that touches
internals of Flower.
"""

from flwr.app import Context, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from moml.flower.app.client_app import app as moml_app

TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1


class InProcess(Grid):
    """Nodes by number; `seen` has every message that went out and every one that came back."""

    def __init__(self, run, nodes, app=moml_app):
        self.contexts = {i: Context(1, i, node, RecordDict(), run) for i, node in nodes.items()}
        self.app, self.seen, self._replies = app, [], {}

    def get_node_ids(self):
        return list(self.contexts)

    def push_messages(self, messages):
        for message in messages:
            number = f"m{len(self.seen)}"
            message.metadata.__dict__["_message_id"] = number
            self.seen.append(message)
            reply = self.app(message, self.contexts[message.metadata.dst_node_id])
            if reply is not None:
                self.seen.append(reply)
                self._replies[number] = reply
        return [message.metadata.message_id for message in messages]

    def pull_messages(self, message_ids):
        return [self._replies.pop(i) for i in list(message_ids) if i in self._replies]

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(list(messages)))

    def set_run(self, run):
        raise NotImplementedError

    create_message = set_run
    run = None
