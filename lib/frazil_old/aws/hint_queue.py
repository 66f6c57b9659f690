"""The queue of S3 events: a message says that something came. What came is in the listing, what is applied in the tables.

S3's listings are consistent, so a listing shows each object whose message was sent before it. A run deletes these
messages whatever became of its tables. A run that died deletes nothing, and its messages wake the next one.
"""

from __future__ import annotations

from typing import Any

MOST = 20_000
"""The most messages that one run deletes; more wake the next run."""


def delete_before(sqs: Any, url: str, listed_ms: int, most: int = MOST) -> int:
    """Delete the messages sent before a run listed (epoch milliseconds), and return how many.

    It ends at the first newer message, which is visible again immediately.
    """
    gone = 0
    while gone < most:
        answer = sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["SentTimestamp"]
        )
        messages = answer.get("Messages", [])
        old = [m for m in messages if int(m["Attributes"]["SentTimestamp"]) < listed_ms]
        for message in (m for m in messages if m not in old):
            sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
        if old:
            entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(old)]
            sqs.delete_message_batch(QueueUrl=url, Entries=entries)
        gone += len(old)
        if len(old) < len(messages) or not messages:
            break
    return gone
