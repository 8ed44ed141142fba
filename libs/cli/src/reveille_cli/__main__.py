"""`python -m reveille_cli`."""

from __future__ import annotations

from reveille_cli.main import main

if __name__ == "__main__":
    main()
