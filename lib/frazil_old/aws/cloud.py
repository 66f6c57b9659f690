"""Calls to AWS: clients of one region, and errors in one line with their remedy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from frazil_old.aws.deployment_parameters import AwsError
from frazil_old.config import aws_calls

CURES = {
    "AccessDenied": "allow the action that it names, or log in as another role",
    "UnauthorizedOperation": "allow the action that it names, or log in as another role",
    "ExpiredToken": "log in again",
    "InvalidClientTokenId": "log in again, or correct the access key",
    "SignatureDoesNotMatch": "log in again, or correct the secret key",
    "LimitExceeded": "ask for a higher quota in the console (Service Quotas), or remove what is not used; then run again",
    "ServiceQuotaExceeded": "ask for a higher quota in the console (Service Quotas), or remove what is not used; then run again",
    "Throttling": "run again in a minute",
}
"""The remedy for an error, by the start of its code."""


class Cloud:
    """AWS in one region, with the credentials of the usual chain."""

    def __init__(self, region: str):
        self.region, self._session = region, None
        self.client = cache(self._client)

    def _client(self, service: str) -> Any:
        with aws_errors_explained("AWS"):
            import boto3

            self._session = self._session or boto3.session.Session(region_name=self.region)
            return self._session.client(service)

    def identity(self) -> tuple[str, str]:
        """Return the account and the partition of the credentials."""
        with aws_errors_explained("AWS"):
            found = self.client("sts").get_caller_identity()
        return found["Account"], found["Arn"].split(":")[1]

    def pages(self, service: str, operation: str, key: str, **given: Any) -> list[Any]:
        """Return all entries of a listing."""
        with aws_errors_explained(operation):
            pages = self.client(service).get_paginator(operation).paginate(**given)
            return [entry for page in pages for entry in page.get(key, ())]


def aws_errors_explained(what: str) -> AbstractContextManager[None]:
    """Turn what boto3 raises into an AwsError that names the cause and the remedy."""
    return aws_calls.explained(AwsError, what, CURES)
