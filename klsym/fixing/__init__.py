"""The smallest change of one statement of the user's code with which its loss is right, read and measured."""
