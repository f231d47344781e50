"""What stores of Azure and Google are told: options of the caller first, then known variables.

Invariant: options leave here complete, under the names that obstore and Lance share: a process with
another environment, such as a Spark task, reaches the same store with them. No value of them
appears in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from omnigraph_lake.errors import InvalidInputError, StorageUnavailableError
from omnigraph_lake.storage.objects.s3_options import ALLOW_HTTP, TIMEOUT, parse_flag, set_timeouts

ACCOUNT: Final = "azure_storage_account_name"
AZURE_ENDPOINT: Final = "azure_storage_endpoint"
_TIMEOUT_VARIABLES: Final = ("OMNIGRAPH_S3_TIMEOUT",)
_AZURE: Final[Mapping[str, tuple[str, ...]]] = {
    ACCOUNT: ("AZURE_STORAGE_ACCOUNT_NAME",),
    "azure_storage_account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY"),
    "azure_storage_sas_key": ("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN"),
    "azure_storage_token": ("AZURE_STORAGE_TOKEN",),
    "azure_storage_client_id": ("AZURE_STORAGE_CLIENT_ID", "AZURE_CLIENT_ID"),
    "azure_storage_client_secret": ("AZURE_STORAGE_CLIENT_SECRET", "AZURE_CLIENT_SECRET"),
    "azure_storage_tenant_id": ("AZURE_STORAGE_TENANT_ID", "AZURE_TENANT_ID"),
    "azure_federated_token_file": ("AZURE_FEDERATED_TOKEN_FILE",),
    "azure_use_azure_cli": ("AZURE_USE_AZURE_CLI",),
    AZURE_ENDPOINT: ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
    ALLOW_HTTP: ("AZURE_ALLOW_HTTP", "ALLOW_HTTP"),
    TIMEOUT: _TIMEOUT_VARIABLES,
}
_NO_CREDENTIALS_OF_AZURE: Final = frozenset({ACCOUNT, AZURE_ENDPOINT, ALLOW_HTTP, TIMEOUT})
_GOOGLE: Final[Mapping[str, tuple[str, ...]]] = {
    "google_service_account": ("GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SERVICE_ACCOUNT_PATH"),
    "google_service_account_key": ("GOOGLE_SERVICE_ACCOUNT_KEY",),
    "google_application_credentials": ("GOOGLE_APPLICATION_CREDENTIALS",),
    ALLOW_HTTP: ("GOOGLE_ALLOW_HTTP", "ALLOW_HTTP"),
    TIMEOUT: _TIMEOUT_VARIABLES,
}
_NO_CREDENTIALS_OF_GOOGLE: Final = frozenset({ALLOW_HTTP, TIMEOUT})


def azure_options(
    caller_options: Mapping[str, str],
    environment: Mapping[str, str],
    *,
    address: str,
    account: str | None,
) -> dict[str, str]:
    """Every option that reaching an address needs; `account` is the one that the address names.

    Raises:
        StorageUnavailableError: no account is known, or plain http is not allowed.
    """
    options = _complete(caller_options, environment, _AZURE, _NO_CREDENTIALS_OF_AZURE)
    if account is not None:
        options[ACCOUNT] = account
    if not options.get(ACCOUNT):
        raise StorageUnavailableError(
            f"no storage account is known for {address}",
            next_step="Set AZURE_STORAGE_ACCOUNT_NAME, or write "
            "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PREFIX.",
        )
    endpoint = options.get(AZURE_ENDPOINT, "").lower()
    if endpoint.startswith("http://") and options.get(ALLOW_HTTP) != "true":
        raise StorageUnavailableError(
            f"the endpoint for {address} speaks plain http, which is not allowed",
            next_step="Set AZURE_ALLOW_HTTP=true if unencrypted traffic is acceptable, "
            "or give an https endpoint.",
        )
    return options


def google_options(
    caller_options: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Every option that reaching a bucket of Google needs."""
    return _complete(caller_options, environment, _GOOGLE, _NO_CREDENTIALS_OF_GOOGLE)


def _complete(
    caller_options: Mapping[str, str],
    environment: Mapping[str, str],
    variables: Mapping[str, tuple[str, ...]],
    no_credentials: frozenset[str],
) -> dict[str, str]:
    options = _one_name_each(caller_options, variables)
    # Credentials of the caller never meet those of the environment.
    has_own = any(name in variables and name not in no_credentials for name in options)
    for name, spelled in variables.items():
        if has_own and name not in no_credentials:
            continue
        value = next((environment[text] for text in spelled if environment.get(text)), None)
        if value is not None:
            options.setdefault(name, value)
    if ALLOW_HTTP in options:
        options[ALLOW_HTTP] = parse_flag(ALLOW_HTTP, options[ALLOW_HTTP])
    set_timeouts(options)
    return options


def _one_name_each(
    caller_options: Mapping[str, str], variables: Mapping[str, tuple[str, ...]]
) -> dict[str, str]:
    options: dict[str, str] = {}
    for spelled_name, value in caller_options.items():
        lowered = spelled_name.lower()
        candidates = (lowered, f"azure_storage_{lowered}", f"google_{lowered}")
        name = next((text for text in candidates if text in variables), lowered)
        if options.setdefault(name, value) != value:
            raise InvalidInputError(
                f"the storage option {name} is given twice, the second time as {spelled_name!r:.80}"
            )
    return options
