"""Where this package lies."""

from pathlib import Path

folder = Path(__file__).resolve().parent


def data(name=""):
    """The path of a shipped file or folder: data("shapes/llama-3.2-1b.csv"), data("models"), data("model_configs"), data("errata")."""
    place = folder / "data" / name
    if not place.exists():
        known = sorted(str(one.relative_to(folder / "data")) for one in (folder / "data").rglob("*") if one.is_file())
        raise FileNotFoundError(f"{name} is no shipped file, expected one of: {', '.join(known)}")
    return str(place)
