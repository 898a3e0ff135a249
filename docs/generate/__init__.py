"""The pages of the site that are made from the repository; `make site` runs `python -m generate`."""
