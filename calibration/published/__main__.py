"""``python -m placer.calibration.published``."""

from placer.calibration.published.fit import main

if __name__ == "__main__":
    main()
