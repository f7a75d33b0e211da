"""What the next start of a broker will do to a store, without doing it.

from store.check.predict import predict
prediction = predict(files, "5.3.3")
"""

from __future__ import annotations

from store.check.predict.prediction import Prediction, predict
from store.check.predict.rules import BROKERS

__all__ = ["BROKERS", "Prediction", "predict"]
