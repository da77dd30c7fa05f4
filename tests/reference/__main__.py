"""Writes the parts of pages that are made from the code, and says which pages changed."""

from tests.reference.pages import PAGES, made_anew


def main() -> None:
    for page in PAGES:
        text = page.read_text()
        if (made := made_anew(text)) != text:
            page.write_text(made)
            print(page.name)


if __name__ == "__main__":
    main()
