"""The version of this distribution, which is Plumbline's own."""

VERSION = "0.1.0"
