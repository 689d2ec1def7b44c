"""Java's class files, packed into one archive that ``java -jar`` runs.

It runs in the sandbox. Standard library and Python 3.8 syntax only.
"""

from __future__ import annotations

import os

# In the constants of a class with ``static void main(String[])``.
MAIN = (b"\x00\x04main", b"([Ljava/lang/String;)V")


def make_archive(folder: str, source: str, path: str) -> None:
    """Pack the class files below a folder.

    The class that starts is ``Main``, the source's, or the first one, if it has a ``main``.
    """
    from zipfile import ZipFile  # slow to load

    found = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            if name.endswith(".class"):
                inner = os.path.relpath(os.path.join(parent, name), folder)
                with open(os.path.join(parent, name), "rb") as file:
                    found[inner] = file.read()
    own = source.rpartition(".")[0]

    def order(inner: str) -> tuple[bool, bool, bool, str]:
        name = os.path.basename(inner)[: -len(".class")]
        return name != "Main", name != own, "$" in name, inner

    starts = [inner for inner, data in found.items() if all(sign in data for sign in MAIN)]
    first = min(starts or ["Main.class"], key=order)[: -len(".class")].replace("/", ".")
    with ZipFile(path, "w") as archive:
        archive.writestr("META-INF/MANIFEST.MF", "Main-Class: %s\n" % first)
        for inner, data in found.items():
            archive.writestr(inner, data)
