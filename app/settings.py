"""Settings, read once from the environment. README's table documents each of them."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from app.domain.session import LONGEST_TTL_SECONDS

_SIXTY_DAYS = 60 * 24 * 3600


class Settings(BaseSettings):
    """Everything that can be set; each field's variable is its name in capitals after ``TURNLOG_``."""

    model_config = SettingsConfigDict(env_prefix="TURNLOG_", frozen=True)

    database_url: SecretStr | None = Field(
        default=None, description="PostgreSQL to use; without it turnlog runs its own"
    )
    data_dir: Path | None = Field(
        default=None, description="folder of the embedded PostgreSQL; default: user data folder"
    )
    database_pool_size: int = Field(
        default=10, ge=1, le=1000, description="connections for reading, and as many for writing"
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
