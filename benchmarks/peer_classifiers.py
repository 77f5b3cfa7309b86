"""scikit-learn's classifiers on all rows in one place: how well the class can be told."""

import time

import numpy as np
import pandas as pd
from sklearn.compose import make_column_transformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

# Probabilities that are tried for the best macro F1 on training rows.
QUANTILES = np.linspace(0.02, 0.995, 120)


def classifiers(table):
    """Accuracy, macro F1, AUROC, macro F1 at the best threshold of training rows, CPU seconds."""
    labels = sorted(table.train[table.target].unique())
    y, y_test = (
        pd.Categorical(rows[table.target], categories=labels).codes
        for rows in (table.train, table.test)
    )
    x, x_test = (rows.drop(columns=table.target) for rows in (table.train, table.test))
    texts = [name for name in x if not pd.api.types.is_numeric_dtype(x[name])]
    for name in texts:
        states = pd.CategoricalDtype(sorted(x[name].unique()))
        x[name], x_test[name] = x[name].astype(states), x_test[name].astype(states)
    found = {}
    for name, model in models(x, texts).items():
        start = time.process_time()
        model.fit(x, y)
        spent = time.process_time() - start
        shares, of_train = (model.predict_proba(rows)[:, 1] for rows in (x_test, x))
        cuts = np.unique(np.quantile(of_train, QUANTILES))
        best = cuts[np.argmax([f1_score(y, of_train > cut, average="macro") for cut in cuts])]
        found[name] = {
            "accuracy": accuracy_score(y_test, shares > 0.5),
            "macro_f1": f1_score(y_test, shares > 0.5, average="macro"),
            "auroc": roc_auc_score(y_test, shares),
            "threshold": f1_score(y_test, shares > best, average="macro"),
            "seconds": spent,
        }
    return found


def models(x, texts):
    """Linear ones see standardised numbers, a missing one as the median, and indicators."""
    numbers = [name for name in x if name not in texts]

    def seen():
        return make_column_transformer(
            (make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), numbers),
            (OneHotEncoder(sparse_output=False, handle_unknown="ignore"), texts),
        )

    return {
        "GaussianNB": make_pipeline(seen(), GaussianNB()),
        "LDA": make_pipeline(seen(), LinearDiscriminantAnalysis()),
        "logistic regression": make_pipeline(seen(), LogisticRegression(max_iter=1000)),
        "HistGradientBoosting": HistGradientBoostingClassifier(
            categorical_features="from_dtype", random_state=0
        ),
    }
