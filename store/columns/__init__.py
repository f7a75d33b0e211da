"""Frames of ordinary messages, written from columns."""
