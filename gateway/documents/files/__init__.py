"""Files that clients upload: stored locally or in a bucket, encrypted, and read as documents after the upload.

Read first: `file_service.py` (`FileService.add`, `CallersFiles`: the files of a caller) and `factory.py` (where
contents are stored). Never reads a document itself: `file_reader.py` does.
"""

from typing import TYPE_CHECKING

from gateway.core.faces import lazy_face

if TYPE_CHECKING:
    from gateway.documents.files import sealed
    from gateway.documents.files.background_reading import ReadingFiles
    from gateway.documents.files.factory import folder_of, open_files, open_stores, store_of
    from gateway.documents.files.file_service import CallersFiles, FileService, FilesHere, UploadFields, are_relayed
    from gateway.documents.files.uploads import PartUploads, PendingUpload
    from gateway.documents.files.wiring import WiredDocuments
else:
    __getattr__ = lazy_face(__name__)
