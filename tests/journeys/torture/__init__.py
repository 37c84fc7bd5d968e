"""A consistency checker: clients write and read while everything is killed, and afterwards all answers must fit."""
