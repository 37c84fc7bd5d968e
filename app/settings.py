"""Settings, read once from the environment. README's table documents each of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

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

    max_body_bytes: int = Field(default=8 * 1024 * 1024, ge=1024, description="largest request body")
    max_event_bytes: int = Field(
        default=4 * 1024 * 1024, ge=1024, description="largest event: its body and metadata as JSON"
    )
    max_batch_events: int = Field(default=1000, ge=1, description="most events in one append")
    max_json_depth: int = Field(default=100, ge=8, le=500, description="deepest nesting of a request body")
    max_metadata_bytes: int = Field(default=64 * 1024, ge=1024, description="largest metadata of a session, as JSON")

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
