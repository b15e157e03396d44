"""Makes an environment with the programs that `h2o-chat bench speed --peers` compares with.

    python tools/make_peers.py FOLDER        # minutes: llama.cpp is compiled
    h2o-chat bench speed --shape smollm2-135m --peers llama.cpp --peers-folder FOLDER

They are no dependencies of this program and never installed beside it. A C++ compiler is needed.
"""

import argparse
import os
import subprocess
import venv
from pathlib import Path

PACKAGES = ("llama-cpp-python", "gguf")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    (folder / "files").mkdir(parents=True, exist_ok=True)
    venv.create(folder / "env", with_pip=True)
    pip = [str(folder / "env" / "bin" / "python"), "-m", "pip", "install", "--no-binary", "llama-cpp-python"]
    # With all that this processor has: the peer shall be as fast as it can be here.
    native = os.environ | {"CMAKE_ARGS": "-DGGML_NATIVE=ON"}
    subprocess.run([*pip, *PACKAGES], check=True, env=native)
    print(f"{folder}: {', '.join(PACKAGES)}")


if __name__ == "__main__":
    main()
