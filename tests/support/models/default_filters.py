"""The filters of a new installation, which schema/work/tables/settings.sql inserts."""

from typing import Final

from usher.door.filters import Filter

_MEDIA: Final = """avif bmp eps gif heic ico jpeg jpg png psd svg tif tiff webp eot otf ttf woff woff2
    aac avi flac flv m4a m4v mkv mov mp3 mp4 mpeg mpg ogg ogv wav webm wma wmv"""
_DOWNLOADS: Final = """7z apk bin bz2 deb dmg exe gz iso jar msi pkg rar rpm tar tgz xz zip zst
    doc docx epub odp ods odt ppt pptx xls xlsx"""
DEFAULTS: Final[tuple[Filter, ...]] = (
    {"name": "long", "rule": "length", "most": 1_000},
    {"name": "loops", "rule": "repeats", "most": 3},
    {"name": "media", "rule": "extension", "any": _MEDIA.split()},
    {"name": "downloads", "rule": "extension", "any": _DOWNLOADS.split()},
    {"name": "sessions", "rule": "sessions"},
    {"name": "permutations", "rule": "order"},
)
