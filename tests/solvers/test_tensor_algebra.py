"""Tensor algebra: against einsum, loops, SVD and TensorLy."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse.linalg import aslinearoperator

from nearfar.solvers import tensor_algebra
from nearfar.solvers.tensor_algebra import (
    expand_stack,
    graph_mode_scatter,
    kron_rows,
    mode_scatter,
    moment_mode_scatter,
    project_stack,
)
from nearfar.tensors import (
    best_rank,
    best_rank_one,
    contract_except,
    fold,
    hosvd,
    mode_dot,
    multi_mode_dot,
    n_rank,
    rank_one,
    rank_one_gram,
    unfold,
)


def random_array(*shape, seed=0):
    return np.random.RandomState(seed).normal(size=shape)


X = random_array(4, 3, 5)
FACTORS = [random_array(4, 2, seed=1), random_array(3, 3, seed=2), random_array(5, 2, seed=3)]
VECTORS = [U[:, 0] for U in FACTORS]


def squares(A):
    return float((np.asarray(A) ** 2).sum())


# ---------------------------------------------------------------------- vocabulary


def test_unfoldings_match_the_thesis():
    T = np.arange(1, 13).reshape(3, 2, 2)
    assert unfold(T, 0).tolist() == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    assert unfold(T, 1).tolist() == [[1, 2, 5, 6, 9, 10], [3, 4, 7, 8, 11, 12]]
    assert unfold(T, 2).tolist() == [[1, 3, 5, 7, 9, 11], [2, 4, 6, 8, 10, 12]]


@pytest.mark.parametrize("mode", [0, 1, 2, -1])
def test_fold_undoes_unfold(mode):
    np.testing.assert_array_equal(fold(unfold(X, mode), mode, X.shape), X)


def test_mode_products_are_sums_over_an_index():
    np.testing.assert_allclose(
        mode_dot(X, FACTORS[1].T, 1), np.einsum("abc,bd->adc", X, FACTORS[1])
    )
    np.testing.assert_allclose(mode_dot(X, VECTORS[1], 1), np.einsum("abc,b->ac", X, VECTORS[1]))
    np.testing.assert_allclose(
        multi_mode_dot(X, FACTORS, transpose=True),
        np.einsum("abc,ad,be,cf->def", X, *FACTORS),
    )


def test_products_commute_and_those_of_one_mode_compose():
    A, B = random_array(2, 4, seed=4), random_array(6, 3, seed=5)
    np.testing.assert_allclose(mode_dot(mode_dot(X, A, 0), B, 1), mode_dot(mode_dot(X, B, 1), A, 0))
    C = random_array(3, 2, seed=6)
    np.testing.assert_allclose(mode_dot(mode_dot(X, A, 0), C, 0), mode_dot(X, C @ A, 0))


def test_flat_rows_are_mapped_by_the_kronecker_product_in_row_major_order():
    expected = multi_mode_dot(X, FACTORS, transpose=True)
    product = np.kron(np.kron(FACTORS[0], FACTORS[1]), FACTORS[2])
    np.testing.assert_allclose(product.T @ X.ravel(), expected.ravel())
    np.testing.assert_allclose(kron_rows(FACTORS) @ X.ravel(), expected.ravel())
    # The classic mistake: the same product with column-major vectors.
    assert not np.allclose(product.T @ X.ravel(order="F"), expected.ravel(order="F"), atol=0.1)
    # Unfolded: own factor on the left, the others in order on the right.
    for mode, other_modes in enumerate([(1, 2), (0, 2), (0, 1)]):
        right = np.kron(FACTORS[other_modes[0]], FACTORS[other_modes[1]])
        np.testing.assert_allclose(
            unfold(expected, mode), FACTORS[mode].T @ unfold(X, mode) @ right
        )


def test_contraction_of_a_stack_is_that_of_each_tensor():
    stack = random_array(7, 4, 3, 5)
    for mode, formula in enumerate(["nabc,b,c->na", "nabc,a,c->nb", "nabc,a,b->nc"]):
        other_vectors = [v for k, v in enumerate(VECTORS) if k != mode]
        result = contract_except(stack, VECTORS, mode)
        np.testing.assert_allclose(result, np.einsum(formula, stack, *other_vectors))
        scores = [(T * rank_one(VECTORS)).sum() for T in stack]
        np.testing.assert_allclose(result @ VECTORS[mode], scores)
    np.testing.assert_array_equal(
        contract_except(random_array(6, 4), [VECTORS[0]], 0), random_array(6, 4)
    )


def test_inner_products_of_rank_one_tensors_without_forming_them():
    second_factors = [random_array(len(U), 3, seed=k) for k, U in enumerate(FACTORS)]
    first, second = [U[:, :2] for U in FACTORS], second_factors
    expected = [
        [
            (rank_one([U[:, r] for U in first]) * rank_one([V[:, s] for V in second])).sum()
            for s in range(3)
        ]
        for r in range(2)
    ]
    np.testing.assert_allclose(rank_one_gram(first, second), expected)
    np.testing.assert_allclose(rank_one_gram(VECTORS, VECTORS), squares(rank_one(VECTORS)))


def test_ranks_of_modes():
    T = multi_mode_dot(random_array(2, 1, 2), FACTORS[:1] + [random_array(3, 1)] + FACTORS[2:])
    assert [n_rank(T, mode) for mode in range(3)] == [2, 1, 2]
    assert n_rank(X, 2) == 5


# ---------------------------------------------------------------------- decompositions


@pytest.mark.parametrize("shape", [(4, 3, 5), (7, 3), (2, 3, 2, 4), (6,), (9, 2, 2), (1, 4, 3)])
def test_hosvd_is_exact_with_orthogonal_and_ordered_slices(shape):
    T = random_array(*shape)
    core, factors = hosvd(T)
    np.testing.assert_allclose(multi_mode_dot(core, factors), T, atol=1e-12)
    assert squares(core) == pytest.approx(squares(T))
    for mode, U in enumerate(factors):
        np.testing.assert_allclose(U.T @ U, np.eye(shape[mode]), atol=1e-12)
        slices = unfold(core, mode)
        gram = slices @ slices.T
        np.testing.assert_allclose(gram, np.diag(gram.diagonal()), atol=1e-10)
        lengths = np.sqrt(gram.diagonal())
        assert (np.diff(lengths) <= 1e-10).all()
        singular = np.linalg.svd(unfold(T, mode), compute_uv=False)
        np.testing.assert_allclose(lengths[: len(singular)], singular, atol=1e-7)


def test_hosvd_of_a_matrix_is_its_svd():
    T = random_array(5, 4)
    core, _ = hosvd(T)
    np.testing.assert_allclose(
        np.abs(core.diagonal()), np.linalg.svd(T, compute_uv=False), atol=1e-12
    )
    assert np.abs(core[~np.eye(5, 4, dtype=bool)]).max() < 1e-12


@pytest.mark.parametrize("ranks", [(2, 2, 2), (1, 3, 2), (4, 1, 1)])
def test_error_of_a_cut_hosvd_lies_between_the_largest_and_the_sum_of_what_is_discarded(ranks):
    core, factors = hosvd(X, ranks)
    error = squares(X - multi_mode_dot(core, factors))
    discarded = [
        squares(np.linalg.svd(unfold(X, mode), compute_uv=False)[q:])
        for mode, q in enumerate(ranks)
    ]
    assert max(discarded) - 1e-10 <= error <= sum(discarded) + 1e-10
    best, axes = best_rank(X, ranks)
    min_error = squares(X - multi_mode_dot(best, axes))
    assert max(discarded) - 1e-10 <= min_error <= error + 1e-10
    assert min_error == pytest.approx(squares(X) - squares(best))


def test_best_rank_one_never_loses_and_has_the_error_of_its_weight(monkeypatch):
    weights = []
    contract = contract_except

    def noted(stack, vectors, mode):
        result = contract(stack, vectors, mode)
        weights.append(np.linalg.norm(result))
        return result

    monkeypatch.setattr(tensor_algebra, "contract_except", noted)
    weight, vectors = best_rank_one(X)
    assert len(weights) > 6 and (np.diff(weights) >= -1e-12).all()
    assert weight == pytest.approx(weights[-1])
    assert squares(X - weight * rank_one(vectors)) == pytest.approx(squares(X) - weight**2)
    assert all(v @ v == pytest.approx(1) for v in vectors)


def test_best_rank_one_of_matrices_vectors_and_tensors_of_rank_one():
    T = random_array(6, 4)
    U, s, Vt = np.linalg.svd(T)
    weight, (u, v) = best_rank_one(T, max_iter=2000, tol=1e-15)
    assert weight == pytest.approx(s[0])
    np.testing.assert_allclose(np.outer(u, v), np.outer(U[:, 0], Vt[0]), atol=1e-6)
    weight, (u,) = best_rank_one([3.0, -4.0])
    assert weight == pytest.approx(5) and np.allclose(u, [0.6, -0.8])
    T = -2.5 * rank_one([v / np.linalg.norm(v) for v in VECTORS])
    weight, vectors = best_rank_one(T)
    assert weight == pytest.approx(2.5)
    np.testing.assert_allclose(weight * rank_one(vectors), T, atol=1e-12)


def test_more_starts_of_best_rank_one_are_never_worse():
    T = random_array(3, 3, 3, 3, seed=9)
    weights = [best_rank_one(T, n_init=n, random_state=0)[0] for n in (1, 3, 10)]
    assert (np.diff(weights) >= 0).all()


def test_a_zero_tensor_has_weight_zero():
    weight, vectors = best_rank_one(np.zeros((3, 2, 2)))
    assert weight == 0 and all(np.isfinite(v).all() for v in vectors)
    core, factors = best_rank(np.zeros((3, 2, 2)), 1)
    assert (core == 0).all() and [U.shape for U in factors] == [(3, 1), (2, 1), (2, 1)]


# ---------------------------------------------------------------------- stacks


@pytest.mark.parametrize("skip", [None, 0, 1, 2])
@pytest.mark.parametrize("shape", [(4, 3, 5), (20, 3, 9)])
def test_projected_stacks_are_products_in_every_mode(shape, skip):
    stack = random_array(6, *shape)
    factors = [random_array(d, q, seed=d) for d, q in zip(shape, (2, 3, 4), strict=True)]
    result = project_stack(stack, factors, skip=skip)
    expected = [multi_mode_dot(T, factors, skip=skip, transpose=True) for T in stack]
    np.testing.assert_allclose(result, expected)
    assert project_stack(stack.astype(np.float32), factors).dtype == np.float32
    assert project_stack(stack, [None, None, None]) is stack


def test_expanded_stacks_are_products_with_the_factors():
    projected = random_array(6, 2, 3, 2)
    expected = [multi_mode_dot(T, FACTORS) for T in projected]
    np.testing.assert_allclose(expand_stack(projected, FACTORS), expected)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_scatters_of_modes_are_sums_over_samples(mode):
    stack, second_stack = random_array(6, 4, 3, 5), random_array(6, 4, 3, 5, seed=1)
    unfolded = [unfold(T, mode) for T in stack]
    np.testing.assert_allclose(mode_scatter(stack, mode), sum(T @ T.T for T in unfolded))
    crossed = sum(T @ unfold(Z, mode).T for T, Z in zip(unfolded, second_stack, strict=True))
    np.testing.assert_allclose(mode_scatter(stack, mode, second_stack), crossed)
    assert mode_scatter(stack.astype(np.float32), mode).dtype == np.float64


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("chunk_size", [1, 3, 1000])
def test_scatters_of_a_graph_are_sums_over_pairs(mode, chunk_size, monkeypatch):
    stack = random_array(6, 4, 3, 5)
    weights = random_array(6, 6, seed=2)
    weights = (weights + weights.T) * (np.abs(weights + weights.T) > 0.5)
    unfolded = [unfold(T, mode) for T in stack]
    differences = [[A - B for B in unfolded] for A in unfolded]
    expected = sum(
        weights[i, j] / 2 * differences[i][j] @ differences[i][j].T
        for i in range(6)
        for j in range(6)
    )
    laplacian = np.diag(weights.sum(axis=1)) - weights
    # Few entries of the other modes at a time give the same, and so does another origin.
    monkeypatch.setattr(tensor_algebra, "_GRAPH_BYTES", 8 * 6 * stack.shape[mode + 1] * chunk_size)
    for L in (laplacian, sparse.csr_array(laplacian), aslinearoperator(laplacian)):
        for shifted_stack in (stack, stack + 1e6):
            result = graph_mode_scatter(shifted_stack, mode, L)
            np.testing.assert_allclose(
                result, expected, atol=1e-12 if shifted_stack is stack else 1e-7
            )


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_moment_gives_scatters_of_projected_tensors(mode):
    stack = random_array(9, 4, 3, 2)
    moment = np.einsum("ni,nj->ij", stack.reshape(9, 24), stack.reshape(9, 24))
    factors = [random_array(4, 2, seed=1), random_array(3, 5, seed=2), random_array(2, 1, seed=3)]
    for used in (None, factors, [None, factors[1], factors[2]], [factors[0], None, None]):
        T = multi_mode_dot(
            stack,
            [U for k, U in enumerate(used or ()) if U is not None and k != mode],
            [k + 1 for k, U in enumerate(used or ()) if U is not None and k != mode],
            transpose=True,
        )
        expected = sum(unfold(X, mode) @ unfold(X, mode).T for X in T)
        result = moment_mode_scatter(moment, (4, 3, 2), mode, used)
        np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10)


# ---------------------------------------------------------------------- against TensorLy


def test_names_and_results_are_those_of_tensorly():
    tl = pytest.importorskip("tensorly")
    from tensorly.decomposition import tucker
    from tensorly.tenalg import mode_dot as their_mode_dot
    from tensorly.tenalg import multi_mode_dot as their_multi_mode_dot

    for mode in range(3):
        np.testing.assert_array_equal(unfold(X, mode), tl.unfold(X, mode))
        flat = tl.unfold(X, mode)
        np.testing.assert_array_equal(fold(flat, mode, X.shape), tl.fold(flat, mode, X.shape))
        for matrices in (FACTORS[mode].T, VECTORS[mode]):
            np.testing.assert_allclose(
                mode_dot(X, matrices, mode), their_mode_dot(X, matrices, mode)
            )
        for matrices in (FACTORS, VECTORS):
            np.testing.assert_allclose(
                multi_mode_dot(X, matrices, skip=mode, transpose=True),
                their_multi_mode_dot(X, matrices, skip=mode, transpose=True),
            )
    mixed = [FACTORS[2].T, VECTORS[0]]
    np.testing.assert_allclose(
        multi_mode_dot(X, mixed, modes=[2, 0]), their_multi_mode_dot(X, mixed, modes=[2, 0])
    )
    T = random_array(6, 5, 4, seed=3)
    core, _ = best_rank(T, (3, 2, 2), max_iter=1000)
    theirs, _ = tucker(T, (3, 2, 2), n_iter_max=1000, tol=1e-14)
    assert squares(core) == pytest.approx(squares(theirs), rel=1e-8)


# ---------------------------------------------------------------------- misuse


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: unfold(X, 3), "mode must be from -3 to 2; got 3"),
        (lambda: fold(unfold(X, 1), 0, X.shape), "unfolds to"),
        (lambda: mode_dot(X, np.eye(4), 1), "mode 1 has length 3, but the matrix is for length 4"),
        (lambda: mode_dot(X, np.ones(4), 1), "the vector is for length 4"),
        (lambda: mode_dot(X, X, 1), "one or two axes"),
        (lambda: multi_mode_dot(X, FACTORS, modes=[0, 1]), "3 matrices, but 2 modes"),
        (lambda: multi_mode_dot(X, FACTORS[:2], modes=[0, 0]), "modes must differ"),
        (lambda: hosvd(X, (4, 4, 4)), r"lengths \(4, 3, 5\); got \(4, 4, 4\)"),
        (lambda: hosvd(X, (2, 2)), "each of the 3 modes"),
        (lambda: best_rank(X, 0), "from 1"),
        (lambda: hosvd(np.full((2, 2), np.nan)), "NaN"),
        (lambda: best_rank_one(np.zeros((0, 2))), "one entry"),
        (lambda: contract_except(X, VECTORS, 0), "2 modes, but there are 3 vectors"),
        (lambda: contract_except(X, VECTORS[:2], 0), "do not fit tensors of shape"),
        (lambda: rank_one_gram(FACTORS, FACTORS[:2]), "A has 3 modes, B has 2"),
    ],
)
def test_invalid_arguments_raise(attempt, message):
    with pytest.raises(ValueError, match=message):
        attempt()
