"""How documents are read, and where files are kept that clients upload (guarantee §14)."""

from typing import Literal

from pydantic import Field, SecretStr, model_validator

from gateway.core.config.settings_fields import Seconds, SettingsSection


class DocumentSettings(SettingsSection):
    """How documents are read (guarantee §14.2 to §14.4)."""

    ocr: Literal["auto", "off"] = Field(
        "auto", description="Recognize the text of scanned pages where `tesseract` is installed; or `off`."
    )
    ocr_languages: str = Field(
        "eng",
        min_length=3,
        max_length=200,
        pattern=r"^[A-Za-z_]+(\+[A-Za-z_]+)*$",
        description="Languages that `tesseract` looks for, such as `eng+deu`; those not installed are left out.",
    )
    seconds: Seconds = Field(60.0, description="Seconds that reading one document may take.")
    memory_bytes: int = Field(2**30, ge=2**28, description="Memory that reading one document may take.")
    native_pages: int = Field(
        8,
        ge=0,
        le=100,
        description="Pages at most that a question brings as PDF pages, where the whole PDF does not fit; 0: none.",
    )
    index_chars: int = Field(
        4_000_000,
        ge=100_000,
        description="Characters from which an attached document is indexed in the storage, in the background.",
    )


class S3Settings(SettingsSection):
    """A bucket for `files.store: s3`; without keys those of the environment or the machine's role count."""

    bucket: str = Field("", description="Name of the bucket.")
    prefix: str = Field("", max_length=512, description="What the names of all objects begin with.")
    endpoint: str | None = Field(None, description="URL of an S3-compatible service; Amazon's own without one.")
    region: str = Field("us-east-1", description="Region that signatures name.")
    access_key: SecretStr | None = Field(None, description="Access key id.")
    secret_key: SecretStr | None = Field(None, description="Secret access key.")


NO_BUCKET = S3Settings()


class FileSettings(SettingsSection):
    """Files that clients upload to `/v1/files` (guarantee §14.5)."""

    serve: Literal["auto", "on", "off"] = Field(
        "auto",
        description="`auto`: served here for clients with a key of the gateway's, and where there is no default "
        "upstream; `on`: for all; `off`: for none.",
    )
    store: Literal["auto", "database", "disk", "s3"] = Field(
        "auto", description="Where contents are kept; `auto`: a folder beside SQLite's file, else the database."
    )
    path: str | None = Field(None, description="Folder of `disk`; without one, `files` beside SQLite's file.")
    max_bytes: int = Field(512 * 2**20, gt=0, description="Larger uploads get a 413.")
    quota_bytes: int | None = Field(None, gt=0, description="Bytes that one tenant may keep; a key may have its own.")
    expires_after: Seconds | None = Field(None, description="Seconds that files are kept which say nothing of it.")
    s3: S3Settings = Field(NO_BUCKET, description="The bucket of `s3`.")

    @model_validator(mode="after")
    def _has_a_place(self) -> "FileSettings":
        if self.store == "s3" and not self.s3.bucket:
            raise ValueError("files.s3.bucket: files.store is s3, so a bucket must be named")
        return self
