"""Files that clients upload: kept here or in a bucket, sealed, and read as documents behind the upload.

Read first: `file_service.py` (`FileService.add`, `CallersFiles`: what a caller has) and `factory.py` (where contents
are). Never reads a document itself: it asks `file_reader.py`.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.documents.files import sealed
    from gateway.documents.files.background_reading import ReadingFiles
    from gateway.documents.files.factory import folder_of, open_files, open_stores, store_of
    from gateway.documents.files.file_service import CallersFiles, FileService, FilesHere, UploadFields, are_relayed
else:
    __getattr__ = lazy_face(
        __name__,
        {
            "CallersFiles": "file_service",
            "FileService": "file_service",
            "FilesHere": "file_service",
            "ReadingFiles": "background_reading",
            "UploadFields": "file_service",
            "are_relayed": "file_service",
            "folder_of": "factory",
            "open_files": "factory",
            "open_stores": "factory",
            "store_of": "factory",
        },
    )

__all__ = [
    "CallersFiles",
    "FileService",
    "FilesHere",
    "ReadingFiles",
    "UploadFields",
    "are_relayed",
    "folder_of",
    "open_files",
    "open_stores",
    "sealed",
    "store_of",
]
