"""An embedded Kafka: one real broker in KRaft mode on loopback, for the demo and the tests."""

from __future__ import annotations

import atexit
import base64
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

from frazil_demo.process import free_ports, stop_process
from frazil_old.config.jars import fetch
from frazil_old.errors import FrazilError

VERSION = "4.1.0"
_JAVA = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true"]
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},GUARDED://127.0.0.1:{guarded},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker},GUARDED://127.0.0.1:{guarded}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,GUARDED:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
listener.name.guarded.sasl.enabled.mechanisms=PLAIN
listener.name.guarded.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_frazil="{password}";
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=1
num.io.threads=2
log.cleaner.enable=false
# Messages stay, however old their own times say that they are: tests send some of years ago.
log.retention.ms=-1
"""


class KafkaError(FrazilError):
    """The embedded broker is not available or does not start."""


def _is_led(admin: Any, topic: str) -> bool:
    """Return whether the broker knows the topic, and a leader of each partition."""
    known = admin.list_topics(timeout=10).topics.get(topic)
    return known is not None and known.error is None and all(p.leader >= 0 for p in known.partitions.values())


class Kafka:
    """Runs a broker for the duration of the `with` block; its messages stay in `folder`, and its port stays the same."""

    PASSWORD = "loopback-only"

    def __init__(self, folder: Path | str):
        self.folder = Path(folder).absolute()
        self._ports = dict(zip(("broker", "guarded", "controller"), free_ports(3), strict=True))
        self._process: subprocess.Popen | None = None

    def __enter__(self) -> Kafka:
        self.start()
        return self

    def __exit__(self, *exc) -> None:
        self.stop()

    @property
    def brokers(self) -> str:
        """The address of the broker."""
        return f"127.0.0.1:{self._ports['broker']}"

    @property
    def pid(self) -> int | None:
        """The broker's process id while it runs."""
        return self._process.pid if self._process else None

    @property
    def guarded(self) -> str:
        """The address that requires a login: SASL_PLAINTEXT, PLAIN, as `frazil` with `PASSWORD`."""
        return f"127.0.0.1:{self._ports['guarded']}"

    def admin(self):
        """Return an admin client."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.brokers, "log_level": 0})

    def create_topic(self, name: str, partitions: int = 1) -> None:
        """Create a topic; return when the broker lists it, which is a moment later."""
        from confluent_kafka.admin import NewTopic

        admin, deadline = self.admin(), time.monotonic() + 30
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        while not _is_led(admin, name):
            if time.monotonic() > deadline:
                raise KafkaError(f"the Kafka broker made topic {name} and does not tell of it", "see its broker.log")
            time.sleep(0.1)

    def start(self) -> None:
        """Start the broker; return when it answers."""
        if self._process:
            return
        classes, properties = (
            ":".join(fetch([f"org.apache.kafka:kafka_2.13:{VERSION}"])),
            self.folder / "server.properties",
        )
        if not properties.is_file():
            self.folder.mkdir(parents=True, exist_ok=True)
            properties.write_text(_PROPERTIES.format(folder=self.folder, password=self.PASSWORD, **self._ports))
            cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "_")
            self._java(classes, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)).wait(60)
        atexit.register(self.stop)
        self._process = self._java(classes, "kafka.Kafka", str(properties))
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.admin().list_topics(timeout=2)
                return
            except Exception:  # the client's own exception, which is imported only where it is used
                time.sleep(0.2)
        self.stop()
        raise KafkaError("the Kafka broker did not start", f"see {self.folder / 'broker.log'}")

    def stop(self) -> None:
        """Stop the broker by its process id; do nothing if it is not running. Its messages stay."""
        process, self._process = self._process, None
        stop_process(process, 20)
        atexit.unregister(self.stop)

    def _java(self, classes: str, *command: str) -> subprocess.Popen:
        with (self.folder / "broker.log").open("ab") as out:
            return subprocess.Popen(
                [*_JAVA, "-cp", classes, *command], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                cwd=self.folder, start_new_session=True,
            )  # fmt: skip
