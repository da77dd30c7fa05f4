"""Values that rules find, by the kind of their placeholders."""

from gateway.core.config.setting_sections import MaskingSettings
from gateway.pipeline.guards.masking import PlaceholderMap, RuleFinder, rules_of

SECRET = b"s" * 32
FINDER = RuleFinder(rules_of(MaskingSettings()))
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA0Z3VS5JJcds3\nxfn/ygWyF0iVb\n-----END RSA PRIVATE KEY-----"
PEM_LINE = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
VALUES = [
    ("EMAIL", "ann.lee+news@mail.example.co.uk"),
    ("EMAIL", "zoë@exämple.de"),
    ("PHONE", "+49 30 901820"),
    ("PHONE", "+14155550123"),
    ("PHONE", "(415) 555-0123"),
    ("CARD", "4111 1111 1111 1111"),
    ("CARD", "378282246310005"),
    ("CARD", "5555-5555-5555-4444"),
    ("IBAN", "DE89 3704 0044 0532 0130 00"),
    ("IBAN", "GB82WEST12345698765432"),
    ("SSN", "123-45-6789"),
    ("IP", "203.0.113.7"),
    ("IP", "2001:db8::8a2e:370:7334"),
    ("KEY", "sk-proj-abcDEF123456ghiJKL789"),
    ("KEY", "AKIAIOSFODNN7EXAMPLE"),
    ("KEY", "ghp_16C7e42F292c6912E7710c838347Ae178B4a"),
    ("KEY", "xoxb-123456789012-abcdefGHIJ"),
    ("JWT", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"),
    ("PRIVATE_KEY", PEM),
    ("PRIVATE_KEY", PEM.replace("\n", "\\n")),
    ("PRIVATE_KEY", PEM_LINE),
    ("PRIVATE_KEY", f"{PEM_LINE}b3Blbn"),
    ("PRIVATE_KEY", f"\\n{PEM_LINE}"),
    ("TOKEN", "Bearer mF_9.B5f-4.1JqM1234"),
    ("URL", "postgresql://app:hunter2@db.internal/orders"),
    ("PASSWORD", "Password=hunter2"),
]


def vault(tenant: str = "a") -> PlaceholderMap:
    """A new vault with all rules."""
    return PlaceholderMap(FINDER, SECRET, tenant)
