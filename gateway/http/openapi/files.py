"""Schemas of `/v1/files`, where files are kept here (guarantee §14.5)."""

from gateway.http.openapi.schemas import FLAG, TEXT, UNIX, WHOLE, Schema, many, obj, or_null, ref
from gateway.models.files import PURPOSES


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
        "id object bytes created_at expires_at filename purpose status status_details",
        object={"const": "file"},
        bytes=WHOLE,
        created_at=UNIX,
        expires_at=or_null(UNIX),
        purpose=purpose,
        status={"enum": ["uploaded", "processed", "error"]},
        status_details=or_null(TEXT),
        progress={"type": "number", "minimum": 0, "maximum": 1},
    )
    page = obj(
        "Files; the next page is `after=` its `last_id`.",
        "object data first_id last_id has_more",
        object={"const": "list"},
        data=many(ref("File")),
        first_id=or_null(TEXT),
        last_id=or_null(TEXT),
        has_more=FLAG,
    )
    deleted = obj(
        "It is gone for good.", "id object deleted", id=TEXT, object={"const": "file"}, deleted={"const": True}
    )
    return {"FileUpload": upload, "File": file, "Files": page, "DeletedFile": deleted}
