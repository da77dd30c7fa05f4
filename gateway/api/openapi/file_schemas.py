"""Schemas of `/v1/files`, where files are kept here (guarantee §14.5)."""

from gateway.api.openapi.schemas import TEXT, WHOLE, Schema, many, obj, ref
from gateway.core.types.files import PURPOSES


def file_schemas() -> dict[str, Schema]:
    """An upload, a file, and a page of them."""
    purpose: Schema = {"enum": list(PURPOSES)}
    upload = obj(
        "A form with one file.",
        "file purpose",
        file={**TEXT, "format": "binary"},
        purpose=purpose,
        **{
            "expires_after[anchor]": {"const": "created_at"},
            "expires_after[seconds]": {**WHOLE, "minimum": 3600, "maximum": 2_592_000},
        },
    )
    file = obj(
        "OpenAI's file object, with `progress` while it is read in the background.",
        "id object bytes:whole created_at:unix expires_at:unix? filename purpose status status_details?",
        object={"const": "file"},
        purpose=purpose,
        status={"enum": ["uploaded", "processed", "error"]},
        progress={"type": "number", "minimum": 0, "maximum": 1},
    )
    page = obj(
        "Files; the next page is `after=` its `last_id`.",
        "object data first_id? last_id? has_more:flag",
        object={"const": "list"},
        data=many(ref("File")),
    )
    deleted = obj(
        "It is gone for good.", "id object deleted", id=TEXT, object={"const": "file"}, deleted={"const": True}
    )
    return {"FileUpload": upload, "File": file, "Files": page, "DeletedFile": deleted}
