"""Settings, read once from the environment. README's table documents each of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.domain.session import LONGEST_TTL_SECONDS

_SIXTY_DAYS = 60 * 24 * 3600


class Summarizer(BaseModel):
    """The model that writes summaries; each field's variable is its name in capitals after ``TURNLOG_SUMMARIZER_``."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    provider: Literal["openai", "anthropic"] | None = Field(
        default=None, description="`openai` for every OpenAI-compatible server, or `anthropic`; unset: no model"
    )
    base_url: str | None = Field(
        default=None, description="where the model is; OpenAI's style ends in /v1; default: the provider's own"
    )
    model: str | None = Field(default=None, description="name of the model")
    api_key: SecretStr | None = Field(default=None, description="key of the provider, where one is needed")
    timeout: float = Field(default=60.0, gt=0, le=3600, description="seconds for a summary, with all retries")
    max_input_tokens: int = Field(default=100_000, ge=1000, description="largest request to the model")
    max_tokens: int = Field(default=2048, ge=1, description="longest answer of the model")

    @model_validator(mode="after")
    def _is_whole(self) -> "Summarizer":
        if self.provider is None and (self.model or self.base_url or self.api_key):
            raise ValueError("TURNLOG_SUMMARIZER_PROVIDER is missing: openai or anthropic")
        if self.provider is not None and not self.model:
            raise ValueError("TURNLOG_SUMMARIZER_MODEL is missing")
        if self.base_url is not None and not self.base_url.startswith(("http://", "https://")):
            raise ValueError("TURNLOG_SUMMARIZER_BASE_URL is not a URL: it begins with https://")
        return self


class Rate(BaseModel):
    """How often one key may be used; each field's variable is its name in capitals after ``TURNLOG_RATE_``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    limit: float | None = Field(
        default=None, ge=0.001, le=1_000_000, description="requests a second, of each key in each process; unset: any"
    )
    burst: int | None = Field(
        default=None, ge=1, le=1_000_000, description="requests at once after a pause; unset: those of a second"
    )

    @model_validator(mode="after")
    def _is_whole(self) -> "Rate":
        if self.burst is not None and self.limit is None:
            raise ValueError("TURNLOG_RATE_BURST means nothing without TURNLOG_RATE_LIMIT")
        return self


Shown: TypeAlias = Literal["open", "key", "off"]


class Show(BaseModel):
    """Who sees what is no session; each field's variable is its name in capitals after ``TURNLOG_SHOW_``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    docs: Shown = Field(
        default="open", description="/docs and /openapi.json: to everybody, to holders of a key, or off"
    )
    metrics: Shown = Field(default="open", description="/metrics: to everybody, to holders of a key, or off")


class Max(BaseModel):
    """The largest things that are taken; each field's variable is its name in capitals after ``TURNLOG_MAX_``."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    body_bytes: int = Field(default=8 * 1024 * 1024, ge=1024, description="largest request body")
    event_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1024, description="largest event: its body and metadata as JSON"
    )
    batch_events: int = Field(default=1000, ge=1, description="most events in one append")
    json_depth: int = Field(default=100, ge=8, le=500, description="deepest nesting of a request body")
    metadata_bytes: int = Field(default=64 * 1024, ge=1024, description="largest metadata of a session, as JSON")
    page: int = Field(default=1000, ge=100, le=10_000, description="largest page of a list")
    open_requests: int = Field(default=1000, ge=1, description="requests in flight, of each server process")
    open_bytes: int = Field(
        default=128 * 1024 * 1024, ge=1024, description="bytes of bodies in memory at once, of each server process"
    )

    @model_validator(mode="after")
    def _fits(self) -> "Max":
        if self.open_bytes < self.body_bytes:
            raise ValueError(
                "TURNLOG_MAX_OPEN_BYTES is smaller than TURNLOG_MAX_BODY_BYTES: no such body could be read"
            )
        return self


class Settings(BaseSettings):
    """Everything that can be set; each field's variable is its name in capitals after ``TURNLOG_``."""

    model_config = SettingsConfigDict(
        env_prefix="TURNLOG_", env_nested_delimiter="_", env_nested_max_split=1, frozen=True, hide_input_in_errors=True
    )

    database_url: SecretStr | None = Field(
        default=None, description="PostgreSQL to use; without it turnlog runs its own"
    )
    data_dir: Path | None = Field(
        default=None, description="folder of the embedded PostgreSQL; default: user data folder"
    )
    database_pool_size: int = Field(
        default=10, ge=1, le=1000, description="connections for reading, and as many for writing"
    )
    database_pooled: bool = Field(
        default=False, description="a pooler that lends out connections by transaction stands before the database"
    )
    view_cache_bytes: int = Field(
        default=64 * 1024 * 1024, ge=0, description="memory for the views read last, of each server process; 0 for none"
    )

    host: str = Field(default="127.0.0.1", description="address to bind")
    port: int = Field(default=8080, ge=0, le=65535, description="port to bind; 0 takes a free one")
    workers: int = Field(default=1, ge=1, le=256, description="server processes")
    shutdown_seconds: int = Field(default=20, ge=1, description="how long a stop waits for requests in flight")

    bootstrap_key: SecretStr | None = Field(
        default=None, description="key that is stored at the start unless it is there: tenant `default`, every scope"
    )
    rate: Rate = Field(default=Rate(), description="how often one key may be used")
    show: Show = Field(default=Show(), description="who sees the documentation and the metrics")

    encoding: str = Field(
        default="o200k_base", description="tiktoken encoding that counts tokens: o200k_base or cl100k_base"
    )
    default_ttl_seconds: Annotated[int | None, NoDecode] = Field(
        default=_SIXTY_DAYS,
        ge=1,
        le=LONGEST_TTL_SECONDS,
        description="life of a session created without ttl_seconds; `never` for no end",
    )
    default_policy: Annotated[str | None, NoDecode] = Field(
        default=None, description="policy, as JSON, for compactions with an empty body of sessions without one"
    )

    summarizer: Summarizer = Field(default=Summarizer(), description="the model that writes summaries")
    compact_concurrency: int = Field(
        default=4, ge=1, le=1000, description="sessions that a process has the model summarize at once for the fleet"
    )

    max: Max = Field(default=Max(), description="the largest things that are taken")
    request_seconds: float = Field(
        default=60.0,
        gt=0,
        le=3600,
        description="how long a client may take to send a request, and each part of an answer",
    )

    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="least severe line to log"
    )
    log_format: Literal["text", "json"] = Field(default="text", description="how log lines look")

    def variables(self) -> dict[str, str]:
        """Return the environment that makes these settings, secrets included: what a new process is given."""
        return dict(_variables(self, "TURNLOG_"))

    @field_validator("default_ttl_seconds", mode="before")
    @classmethod
    def _never(cls, value: Any) -> Any:
        return None if value == "never" else value

    @field_validator("default_policy")
    @classmethod
    def _is_json(cls, value: str | None) -> str | None:
        if value is not None:
            json.loads(value)
        return value


def _variables(group: BaseModel, prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in group:
        if isinstance(value, BaseModel):
            yield from _variables(value, f"{prefix}{name.upper()}_")
        elif value is not None:
            yield f"{prefix}{name.upper()}", str(value.get_secret_value() if isinstance(value, SecretStr) else value)


def fields(group: type[BaseModel] = Settings, prefix: str = "TURNLOG_") -> dict[str, FieldInfo]:
    """Return every setting there is by its variable."""
    found: dict[str, FieldInfo] = {}
    for name, field in group.model_fields.items():
        kind = field.annotation
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            found |= fields(kind, f"{prefix}{name.upper()}_")
        else:
            found[f"{prefix}{name.upper()}"] = field
    return found
