"""Tables of the analyses, each computed first, then rendered, and the contrasts of their claims."""
