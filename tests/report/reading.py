"""A page, read: its elements, and what is wrong with them."""

from html.parser import HTMLParser

VOID = {"meta"}


class Page(HTMLParser):
    """Tags with their attributes in order, the text under each; `flaws` has what does not nest."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.open, self.flaws, self.texts = [], [], [], []
        self.source = path.read_text(encoding="utf-8")
        self.feed(self.source)
        self.close()
        self.flaws += self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), [name for name, _ in self.open]))
        if tag not in VOID:
            self.open.append((tag, len(self.texts)))
        if len({name for name, _ in attrs}) < len(attrs):
            self.flaws.append(f"an attribute of {tag} twice")

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), [name for name, _ in self.open]))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.flaws.append(f"</{tag}> in {self.open[-1:]}")
        else:
            self.open.pop()

    def handle_data(self, data):
        self.texts.append((tuple(name for name, _ in self.open), data))

    def all(self, tag):
        """The attributes of all elements of this kind."""
        return [attributes for name, attributes, _ in self.tags if name == tag]

    def said(self, *tags):
        """The texts in elements of this kind, or all that people see."""
        wanted = tags or ("body",)
        return [text for inside, text in self.texts if set(wanted) & set(inside)]

    @property
    def words(self):
        """All that people see, in one line."""
        return " ".join("".join(self.said()).split())
