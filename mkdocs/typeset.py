"""MkDocs hooks: links to notebooks, formulas as MathML, and numbers with ± on one line."""

import html
import re

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(span|div) class="arithmatex">\s*\\([(\[])(.*?)\\[)\]]\s*</\1>', re.DOTALL)


def on_page_markdown(markdown: str, **_) -> str:
    """Replace the ending of links to notebooks."""
    return markdown.replace(".ipynb)", ".md)")


def on_page_content(content: str, **_) -> str:
    """Replace the formulas that pymdownx.arithmatex has marked, and the spaces around ±."""
    return FORMULA.sub(to_mathml, content).replace(" ± ", "\u00a0±\u00a0")


def to_mathml(formula: re.Match) -> str:
    """Return a formula that pymdownx.arithmatex has marked as MathML."""
    tag, opening, latex = formula.groups()
    display = "block" if opening == "[" else "inline"
    return (
        f'<{tag} class="formula">{convert(html.unescape(latex).strip(), display=display)}</{tag}>'
    )
