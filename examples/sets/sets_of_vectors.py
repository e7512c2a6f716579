"""
A folder of recordings, and a report on it
==========================================

Each recording is a set of vectors, a Gaussian is made of each set, and the question is which
dissimilarity of Gaussians tells the labels apart, for speakers (or players) that were not heard
before.

Run it with ``pip install 'nearfar[audio]'`` and ``python examples/sets/sets_of_vectors.py``, which
writes some recordings first, or with ``--folder FOLDER`` on recordings of your own, in files
``label/speaker/anything.wav``. It takes some ten seconds.
"""

# %%
# Read the folder. The name of the first sub-folder is the label, that of the second the group.

import argparse
import tempfile

import numpy as np
from sklearn.metrics import confusion_matrix
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.svm import SVC

from nearfar import Gaussians, SetEmbedding, SetKNeighborsClassifier
from nearfar.datasets import read_recordings, write_tones
from nearfar.distributions import dissimilarity, metric_report

parser = argparse.ArgumentParser(description="Which dissimilarity tells recordings apart?")
parser.add_argument("--folder", help="of recordings, label/speaker/anything.wav")
parser.add_argument("--players", type=int, default=8, help="how many to write without a folder")
parser.add_argument("--picture", help="a file to draw the confusions into (needs matplotlib)")
options = parser.parse_args()

folder = options.folder or write_tones(
    tempfile.mkdtemp(), n_players=options.players, random_state=0
)
sets = read_recordings(folder)
y, groups = sets.labels, np.array([name.split("/")[1] for name in sets.names])
folds = GroupKFold(min(4, len(np.unique(groups))))
print(sets)
print(f"{len(np.unique(y))} labels, {len(np.unique(groups))} groups\n")

# %%
# How far from a metric are the dissimilarities of these sets? (See the guide on sets of vectors.)

measures = ["mean", "riemann", "bhattacharyya_riemann"]
for measure, D in dissimilarity(Gaussians.from_sets(sets), metric=measures).items():
    report = metric_report(D)
    print(
        f"{measure:22} triangles violated {report.triangle_violations:6.1%}, "
        f"negative mass {report.negative_share:6.1%}"
    )

# %%
# Share of recordings that are right, each group classified by the others.

print("\nright, groups kept apart   neighbours   embedding and SVM")
for measure in measures:
    models = (
        SetKNeighborsClassifier(metric=measure),
        make_pipeline(SetEmbedding(metric=measure), SVC(C=10)),
    )
    right = [cross_val_score(model, sets, y, groups=groups, cv=folds).mean() for model in models]
    print(f"{measure:22} {right[0]:14.0%} {right[1]:19.0%}")

# %%
# Measure and shrinkage are chosen by folds of the training groups; the last groups say what that is
# worth. Then all is fitted, and the confusions of left-out groups are shown.

last = np.isin(groups, np.unique(groups)[-max(1, len(np.unique(groups)) // 4) :])
search = GridSearchCV(
    make_pipeline(SetEmbedding(), SVC(C=10)),
    {"setembedding__metric": measures, "setembedding__shrinkage": [None, 0.1]},
    cv=GroupKFold(min(3, len(np.unique(groups[~last])))),
).fit(sets[~last], y[~last], groups=groups[~last])
print(f"\nchosen: {search.best_params_}")
print(f"right on groups that took no part: {search.score(sets[last], y[last]):.0%}")

found = cross_val_predict(search.best_estimator_, sets, y, groups=groups, cv=folds)
print("\nrows: true, columns: found")
for label, row in zip(np.unique(y), confusion_matrix(y, found), strict=True):
    print(f"{label:>12}", *(f"{count:4}" for count in row))
wrong = np.flatnonzero(found != y)
for k in wrong[:5]:
    print(f"{sets.names[k]} was taken for {found[k]}")

# %%
# The confusions as a picture; that on the card of this example is of eight players.

if options.picture:
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay

    figure = Figure(figsize=(4, 2.8), layout="constrained")
    ConfusionMatrixDisplay.from_predictions(
        y, found, ax=figure.subplots(), cmap="Blues", colorbar=False, xticks_rotation=20
    )
    figure.savefig(options.picture, dpi=100)

# sphinx_gallery_thumbnail_path = '_static/sets_of_vectors.png'
