"""``python -m placer.calibration.lab.published``."""

from placer.calibration.lab.published.fit import main

if __name__ == "__main__":
    main()
