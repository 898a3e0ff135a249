(* Rational intervals, and enclosures of ln without floats.

   ln((1+z)/(1-z)) = 2 (z + z^3/3 + ...); the terms left out are at most 2/(1-z^2) times the next one.  Ends are rounded
   outwards to multiples of 2^-96, so that they stay short. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Qround Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Ring.
Import ListNotations.
Open Scope R_scope.

(* ---------- rounding ---------- *)
Definition unit_ : positive := 79228162514264337593543950336.   (* 2^96 *)
Definition down (x : Q) : Q := Qmake (Qnum x * Zpos unit_ / Zpos (Qden x)) unit_.
Definition up (x : Q) : Q := Qopp (down (Qopp x)).
Lemma down_ok x : Q2R (down x) <= Q2R x.
Proof.
  apply Qle_Rle. unfold Qle, down. cbn [Qnum Qden]. rewrite Z.mul_comm.
  pose proof (Z.mul_div_le (Qnum x * Zpos unit_) (Zpos (Qden x)) eq_refl). lia.
Qed.
Lemma up_ok x : Q2R x <= Q2R (up x).
Proof. unfold up. rewrite Q2R_opp. pose proof (down_ok (Qopp x)) as H. rewrite Q2R_opp in H. lra. Qed.

(* ---------- intervals ---------- *)
Definition itv := (Q * Q)%type.
Definition inside (i : itv) (x : R) : Prop := Q2R (fst i) <= x <= Q2R (snd i).
Definition exact (c : Q) : itv := (c, c).
Definition short (i : itv) : itv :=
  if (Pos.size (Qden (fst i)) + Pos.size (Qden (snd i)) <? 400)%positive then i else (down (fst i), up (snd i)).
Definition iadd (i j : itv) : itv := short (Qred (fst i + fst j), Qred (snd i + snd j)).
Definition qmin (a b : Q) : Q := if Qle_bool a b then a else b.
Definition qmax (a b : Q) : Q := if Qle_bool a b then b else a.
Definition iscale (c : Q) (i : itv) : itv :=
  let a := Qred (c * fst i) in let b := Qred (c * snd i) in short (if Qle_bool 0 c then (a, b) else (b, a)).
Definition hull (i j : itv) : itv := (qmin (fst i) (fst j), qmax (snd i) (snd j)).
Definition imul (i j : itv) : itv := hull (iscale (fst i) j) (iscale (snd i) j).
Fixpoint ipow (i : itv) (n : nat) : itv := match n with O => exact 1 | S n => imul i (ipow i n) end.

Lemma exact_ok c : inside (exact c) (Q2R c). Proof. unfold inside, exact; cbn; lra. Qed.
Lemma short_ok i x : inside i x -> inside (short i) x.
Proof.
  unfold inside, short. destruct (_ <? _)%positive; auto. cbn.
  pose proof (down_ok (fst i)). pose proof (up_ok (snd i)). lra.
Qed.
Lemma iadd_ok i j x y : inside i x -> inside j y -> inside (iadd i j) (x + y).
Proof.
  intros A B. apply short_ok. unfold inside in *. cbn [fst snd]. rewrite !Q2R_red, !Q2R_plus. lra.
Qed.
Lemma qle_dec a b : if Qle_bool a b then Q2R a <= Q2R b else Q2R b <= Q2R a.
Proof.
  destruct (Qle_bool a b) eqn:H.
  - apply Qle_Rle. now apply Qle_bool_iff.
  - apply Qle_Rle, Qlt_le_weak, Qnot_le_lt. intros K. apply Qle_bool_iff in K. congruence.
Qed.
Lemma qmin_ok a b : Q2R (qmin a b) <= Q2R a /\ Q2R (qmin a b) <= Q2R b.
Proof. unfold qmin. pose proof (qle_dec a b). destruct (Qle_bool a b); lra. Qed.
Lemma qmax_ok a b : Q2R a <= Q2R (qmax a b) /\ Q2R b <= Q2R (qmax a b).
Proof. unfold qmax. pose proof (qle_dec a b). destruct (Qle_bool a b); lra. Qed.
Lemma Q2R_0 : Q2R 0 = 0. Proof. unfold Q2R; simpl; field. Qed.
Lemma iscale_ok c i x : inside i x -> inside (iscale c i) (Q2R c * x).
Proof.
  intros [A B]. apply short_ok. pose proof (qle_dec 0 c) as C. rewrite Q2R_0 in C.
  destruct (Qle_bool 0 c); unfold inside; cbn [fst snd]; rewrite !Q2R_red, !Q2R_mult; nra.
Qed.
Lemma hull_ok i j x a b : inside i a -> inside j b -> (a <= x <= b \/ b <= x <= a) -> inside (hull i j) x.
Proof.
  unfold inside, hull. cbn [fst snd]. intros A B C.
  pose proof (qmin_ok (fst i) (fst j)). pose proof (qmax_ok (snd i) (snd j)). lra.
Qed.
Lemma imul_ok i j x y : inside i x -> inside j y -> inside (imul i j) (x * y).
Proof.
  intros A B. apply (hull_ok _ _ _ (Q2R (fst i) * y) (Q2R (snd i) * y)); try now apply iscale_ok.
  destruct A as [A1 A2]. destruct (Rle_dec 0 y); [left|right]; nra.
Qed.
Lemma ipow_ok i x n : inside i x -> inside (ipow i n) (x ^ n).
Proof.
  intros A. induction n as [|n IH]; cbn [ipow pow]; [rewrite <- Q2R_1; apply exact_ok|now apply imul_ok].
Qed.

(* ---------- the series of ln ---------- *)
Fixpoint A (n : nat) (z : R) : R := match n with O => 0 | S m => A m z + z ^ (2 * m + 1) / INR (2 * m + 1) end.
Fixpoint G (n : nat) (z : R) : R := match n with O => 0 | S m => G m z + z ^ (2 * m) end.
Lemma G_eq n z : (1 - z ^ 2) * G n z = 1 - z ^ (2 * n).
Proof.
  induction n as [|n IH]; [simpl; ring|]. cbn [G]. rewrite Rmult_plus_distr_l, IH.
  replace (2 * S n)%nat with (2 * n + 2)%nat by lia. rewrite pow_add. ring.
Qed.
Lemma A_derive n z : is_derive (A n) z (G n z).
Proof.
  induction n as [|n IH]; cbn [A G]; [apply derive_const|]. apply derive_plus; [exact IH|].
  assert (N : INR (2 * n + 1) <> 0) by (apply not_0_INR; lia).
  pose proof (derive_scal _ (/ INR (2 * n + 1)) _ _ (is_derive_pow (fun z => z) (2 * n + 1) z 1 (is_derive_id z))) as P.
  apply (is_derive_ext (fun z => / INR (2 * n + 1) * z ^ (2 * n + 1))); [intros; unfold Rdiv; apply Rmult_comm|].
  replace (z ^ (2 * n)) with (/ INR (2 * n + 1) * (INR (2 * n + 1) * 1 * z ^ pred (2 * n + 1))); [exact P|].
  replace (pred (2 * n + 1)) with (2 * n)%nat by lia. field. exact N.
Qed.
Lemma A_0 n : A n 0 = 0.
Proof. induction n as [|n IH]; [easy|]. cbn [A]. rewrite IH, pow_i by lia. unfold Rdiv; ring. Qed.
Definition L z := ln (1 + z) - ln (1 - z).
Lemma L_derive z : 0 <= z < 1 -> is_derive L z (2 / (1 - z ^ 2)).
Proof. intros H. unfold L. auto_derive; [repeat split; lra|]. field. nra. Qed.
Lemma increasing (f f' : R -> R) z : 0 <= z -> (forall t, 0 <= t <= z -> is_derive f t (f' t)) ->
  (forall t, 0 <= t <= z -> 0 <= f' t) -> f 0 <= f z.
Proof.
  intros Z D P. destruct (MVT_gen f 0 z f') as [c [C E]].
  - intros x Hx. apply D. rewrite Rmin_left, Rmax_right in Hx; lra.
  - intros x Hx. rewrite Rmin_left, Rmax_right in Hx by lra.
    apply continuity_pt_filterlim, (ex_derive_continuous f). eexists; apply D; lra.
  - rewrite Rmin_left, Rmax_right in C by lra. pose proof (P c C). nra.
Qed.
Lemma G_rest n t : 0 <= t < 1 -> 2 / (1 - t ^ 2) - 2 * G n t = 2 * t ^ (2 * n) / (1 - t ^ 2).
Proof.
  intros H. assert (P : 0 < 1 - t ^ 2) by nra. pose proof (G_eq n t) as E.
  assert (Ge : G n t = (1 - t ^ (2 * n)) / (1 - t ^ 2)) by (rewrite <- E; field; lra).
  rewrite Ge. generalize (t ^ (2 * n)); intros; field; lra.
Qed.
Lemma rest_nonneg n t : 0 <= t < 1 -> 0 <= 2 * t ^ (2 * n) / (1 - t ^ 2).
Proof.
  intros H. apply Rmult_le_pos; [apply Rmult_le_pos; [lra|apply pow_le; lra]|].
  left; apply Rinv_0_lt_compat; nra.
Qed.
Lemma L_0 : L 0 = 0. Proof. unfold L; rewrite Rplus_0_r, Rminus_0_r; ring. Qed.
Theorem ln_lower n z : 0 <= z < 1 -> 2 * A n z <= L z.
Proof.
  intros Z.
  pose proof (increasing (fun t => L t + (-2) * A n t) (fun t => 2 / (1 - t ^ 2) + (-2) * G n t) z) as I.
  cbv beta in I. rewrite L_0, A_0 in I. enough (0 + -2 * 0 <= L z + -2 * A n z) by lra.
  apply I; [lra| |]; intros t T.
  - apply derive_plus; [apply L_derive; lra|apply derive_scal, A_derive].
  - pose proof (G_rest n t ltac:(lra)). pose proof (rest_nonneg n t ltac:(lra)). lra.
Qed.
Theorem ln_upper n z : 0 <= z < 1 -> L z <= 2 * A n z + 2 / (1 - z ^ 2) * (z ^ (2 * n + 1) / INR (2 * n + 1)).
Proof.
  intros Z. set (K := 2 / (1 - z ^ 2)).
  pose proof (increasing (fun t => (2 * A n t + K * (A (S n) t + (-1) * A n t)) + (-1) * L t)
    (fun t => (2 * G n t + K * (G (S n) t + (-1) * G n t)) + (-1) * (2 / (1 - t ^ 2))) z) as I.
  cbv beta in I. rewrite L_0, !A_0 in I.
  enough (2 * 0 + K * (0 + -1 * 0) + -1 * 0 <= 2 * A n z + K * (A (S n) z + -1 * A n z) + -1 * L z).
  { cbn [A] in *. lra. }
  apply I; [lra| |]; intros t T.
  - apply derive_plus; [apply derive_plus|].
    + apply derive_scal, A_derive.
    + apply derive_scal, derive_plus; [apply A_derive|apply derive_scal, A_derive].
    + apply derive_scal, L_derive; lra.
  - cbn [G]. pose proof (G_rest n t ltac:(lra)) as E.
    assert (Q0 : 2 * t ^ (2 * n) / (1 - t ^ 2) <= K * t ^ (2 * n)).
    { unfold K, Rdiv. rewrite (Rmult_comm (2 * t ^ (2 * n))), (Rmult_comm 2), !Rmult_assoc.
      rewrite (Rmult_comm (/ (1 - t ^ 2))), (Rmult_comm (/ (1 - z ^ 2))).
      assert (/ (1 - t ^ 2) <= / (1 - z ^ 2)) by (apply Rinv_le_contravar; nra).
      assert (0 <= t ^ (2 * n)) by (apply pow_le; lra). nra. }
    lra.
Qed.

(* ---------- with rationals ---------- *)
Definition TERMS : nat := 20.
Fixpoint qpow (z : Q) (n : nat) : Q := match n with O => 1%Q | S n => (z * qpow z n)%Q end.
Lemma qpow_ok z n : Q2R (qpow z n) = Q2R z ^ n.
Proof. induction n as [|n IH]; cbn [qpow pow]; [apply Q2R_1|now rewrite Q2R_mult, IH]. Qed.
Definition odd_ (j : nat) : Q := Qmake 1 (Pos.of_nat (2 * j + 1)).
Lemma odd_ok j : Q2R (odd_ j) = / INR (2 * j + 1) /\ 0 < / INR (2 * j + 1).
Proof.
  split; [|apply Rinv_0_lt_compat, lt_0_INR; lia].
  unfold odd_, Q2R. cbn [Qnum Qden]. rewrite INR_IZR_INZ, Rmult_1_l. do 2 f_equal. lia.
Qed.
(* pw is a bound of z^(2j+1), z2 is z^2, and rest is 1/(1-z^2) *)
Fixpoint A_low (n j : nat) (z2 pw : Q) : Q :=
  match n with O => 0%Q | S n => down (pw * odd_ j + A_low n (S j) z2 (down (pw * z2))) end.
Fixpoint A_high (n j : nat) (z2 rest pw : Q) : Q :=
  match n with O => up (pw * odd_ j * rest)
  | S n => up (pw * odd_ j + A_high n (S j) z2 rest (up (pw * z2))) end.
Lemma A_low_ok n j z z2 pw : Q2R z2 = z ^ 2 -> Q2R pw <= z ^ (2 * j + 1) ->
  Q2R (A_low n j z2 pw) <= A (n + j) z - A j z.
Proof.
  intros Z. revert j pw; induction n as [|n IH]; intros j pw P; cbn [A_low]; [rewrite Q2R_0, Nat.add_0_l; lra|].
  rewrite Nat.add_succ_l.
  eapply Rle_trans; [apply down_ok|]. rewrite Q2R_plus, Q2R_mult. destruct (odd_ok j) as [-> O].
  assert (N : Q2R (down (pw * z2)) <= z ^ (2 * S j + 1)).
  { eapply Rle_trans; [apply down_ok|]. rewrite Q2R_mult, Z.
    replace (2 * S j + 1)%nat with ((2 * j + 1) + 2)%nat by lia. rewrite pow_add.
    apply Rmult_le_compat_r; [apply pow2_ge_0|exact P]. }
  pose proof (IH (S j) _ N) as H. rewrite Nat.add_succ_r in H. cbn [A] in H.
  assert (Q2R pw * / INR (2 * j + 1) <= z ^ (2 * j + 1) * / INR (2 * j + 1)) by (apply Rmult_le_compat_r; [left; exact O|assumption]).
  cbn [A]. unfold Rdiv in *. lra.
Qed.
Lemma A_high_ok n j z z2 rest pw : Q2R z2 = z ^ 2 -> 0 <= Q2R rest -> z ^ (2 * j + 1) <= Q2R pw ->
  A (n + j) z - A j z + Q2R rest * (z ^ (2 * (n + j) + 1) / INR (2 * (n + j) + 1)) <= Q2R (A_high n j z2 rest pw).
Proof.
  intros Z K. revert j pw; induction n as [|n IH]; intros j pw P; cbn [A_high].
  - eapply Rle_trans; [|apply up_ok]. rewrite !Q2R_mult. destruct (odd_ok j) as [-> O]. rewrite Nat.add_0_l.
    assert (H : z ^ (2 * j + 1) * / INR (2 * j + 1) <= Q2R pw * / INR (2 * j + 1)) by (apply Rmult_le_compat_r; [left; exact O|assumption]).
    apply (Rmult_le_compat_r (Q2R rest)) in H; [|exact K]. unfold Rdiv. lra.
  - eapply Rle_trans; [|apply up_ok]. rewrite Q2R_plus, Q2R_mult. destruct (odd_ok j) as [-> O].
    assert (N : z ^ (2 * S j + 1) <= Q2R (up (pw * z2))).
    { eapply Rle_trans; [|apply up_ok]. rewrite Q2R_mult, Z.
      replace (2 * S j + 1)%nat with ((2 * j + 1) + 2)%nat by lia. rewrite pow_add.
      apply Rmult_le_compat_r; [apply pow2_ge_0|exact P]. }
    pose proof (IH (S j) _ N) as H. rewrite Nat.add_succ_r in H. cbn [A] in H.
    assert (z ^ (2 * j + 1) * / INR (2 * j + 1) <= Q2R pw * / INR (2 * j + 1)) by (apply Rmult_le_compat_r; [left; exact O|assumption]).
    rewrite Nat.add_succ_l. cbn [A]. unfold Rdiv in *. lra.
Qed.
(* ln y for y >= 1, with z = (y-1)/(y+1) *)
Definition zed (y : Q) : Q := Qred ((y - 1) / (y + 1)).
Definition low_ge1 (y : Q) : Q := let z := zed y in (2 * A_low TERMS 0 (z * z) z)%Q.
Definition high_ge1 (y : Q) : Q :=
  let z := zed y in (2 * A_high TERMS 0 (z * z) (1 / (1 - z * z)) z)%Q.
Lemma zed_ok y : 1 <= Q2R y -> 0 <= Q2R (zed y) < 1 /\ L (Q2R (zed y)) = ln (Q2R y).
Proof.
  intros H. assert (N : ~ (y + 1 == 0)%Q).
  { intros K. apply Qeq_eqR in K. rewrite Q2R_plus, Q2R_0, Q2R_1 in K. lra. }
  unfold zed. rewrite Q2R_red, Q2R_div, Q2R_minus, Q2R_plus, Q2R_1 by exact N.
  set (t := Q2R y) in *. assert (P : 0 < / (t + 1)) by (apply Rinv_0_lt_compat; lra).
  split.
  - split; [apply Rmult_le_pos; lra|]. apply (Rmult_lt_reg_r (t + 1)); [lra|].
    replace ((t - 1) / (t + 1) * (t + 1)) with (t - 1) by (field; lra). lra.
  - unfold L. replace (1 + (t - 1) / (t + 1)) with (2 * t / (t + 1)) by (field; lra).
    replace (1 - (t - 1) / (t + 1)) with (2 / (t + 1)) by (field; lra).
    rewrite <- ln_div; [f_equal; field; lra| |]; apply Rdiv_lt_0_compat; lra.
Qed.
Lemma square z : Q2R (z * z) = Q2R z ^ 2. Proof. rewrite Q2R_mult. ring. Qed.
Lemma Q2R_2 : Q2R 2 = 2. Proof. unfold Q2R; simpl; field. Qed.
Lemma low_ge1_ok y : 1 <= Q2R y -> Q2R (low_ge1 y) <= ln (Q2R y).
Proof.
  intros H. destruct (zed_ok y H) as [Z <-]. unfold low_ge1. cbv zeta. rewrite Q2R_mult, Q2R_2.
  pose proof (ln_lower TERMS _ Z) as B.
  assert (P : Q2R (zed y) <= Q2R (zed y) ^ (2 * 0 + 1)) by (simpl; lra).
  pose proof (A_low_ok TERMS 0 _ _ _ (square (zed y)) P) as C. rewrite Nat.add_0_r in C. cbn [A] in C. lra.
Qed.
Lemma high_ge1_ok y : 1 <= Q2R y -> ln (Q2R y) <= Q2R (high_ge1 y).
Proof.
  intros H. destruct (zed_ok y H) as [Z <-]. unfold high_ge1. cbv zeta. rewrite Q2R_mult, Q2R_2.
  pose proof (ln_upper TERMS _ Z) as B. set (z := zed y) in *.
  assert (D : 0 < 1 - Q2R z ^ 2) by nra.
  assert (N : ~ (1 - z * z == 0)%Q).
  { intros K. apply Qeq_eqR in K. rewrite Q2R_minus, square, Q2R_0, Q2R_1 in K. lra. }
  assert (R1 : Q2R (1 / (1 - z * z)) = / (1 - Q2R z ^ 2)).
  { rewrite Q2R_div, Q2R_minus, square, Q2R_1 by exact N. unfold Rdiv. ring. }
  assert (P : Q2R z ^ (2 * 0 + 1) <= Q2R z) by (simpl; lra).
  assert (K : 0 <= Q2R (1 / (1 - z * z))) by (rewrite R1; left; now apply Rinv_0_lt_compat).
  pose proof (A_high_ok TERMS 0 _ _ _ _ (square z) K P) as C. rewrite Nat.add_0_r, R1 in C. cbn [A] in C.
  unfold Rdiv in *. lra.
Qed.
Definition log_itv_ge1 (y : Q) : itv := (low_ge1 y, high_ge1 y).
Definition ineg (i : itv) : itv := (Qopp (snd i), Qopp (fst i)).
(* between 1/2 and 2, rounded; both ends stay positive or the answer is none *)
Definition near (y : Q) : option itv :=
  let a := down y in let b := up y in
  if Qle_bool 1 a then Some (low_ge1 a, high_ge1 b)
  else if Qle_bool b 1 && Qle_bool (1 # 4) a then Some (Qopp (high_ge1 (/ a)), Qopp (low_ge1 (/ b)))
  else if Qle_bool (1 # 4) a && Qle_bool 1 b then Some (Qopp (high_ge1 (/ a)), high_ge1 b) else None.
Lemma ln_le x y : 0 < x -> x <= y -> ln x <= ln y.
Proof. intros H [K| ->]; [left; now apply ln_increasing|lra]. Qed.
Lemma inv_ge1 a : 0 < Q2R a -> Q2R a <= 1 -> 1 <= Q2R (/ a) /\ ln (Q2R (/ a)) = - ln (Q2R a).
Proof.
  intros P H. assert (N : ~ (a == 0)%Q) by (intros K; apply Qeq_eqR in K; rewrite Q2R_0 in K; lra).
  rewrite Q2R_inv by exact N. split.
  - rewrite <- Rinv_1. apply Rinv_le_contravar; lra.
  - now apply ln_Rinv.
Qed.
Lemma Qle_bool_R a b : Qle_bool a b = true -> Q2R a <= Q2R b.
Proof. intros H. now apply Qle_Rle, Qle_bool_iff. Qed.
Lemma quarter : Q2R (1 # 4) = 1 / 4. Proof. unfold Q2R; simpl; field. Qed.
Lemma near_ok y i : near y = Some i -> inside i (ln (Q2R y)).
Proof.
  unfold near, inside. pose proof (down_ok y) as D. pose proof (up_ok y) as U.
  set (a := down y) in *. set (b := up y) in *.
  destruct (Qle_bool 1 a) eqn:C1.
  - apply Qle_bool_R in C1. rewrite Q2R_1 in C1. intros [= <-]. cbn [fst snd].
    pose proof (low_ge1_ok a C1). pose proof (high_ge1_ok b ltac:(lra)).
    pose proof (ln_le (Q2R a) (Q2R y) ltac:(lra) D). pose proof (ln_le (Q2R y) (Q2R b) ltac:(lra) U). lra.
  - destruct (Qle_bool b 1 && Qle_bool (1 # 4) a)%bool eqn:C2.
    + apply andb_prop in C2 as [B1 A1]. apply Qle_bool_R in B1, A1. rewrite Q2R_1 in B1. rewrite quarter in A1.
      intros [= <-]. cbn [fst snd]. rewrite !Q2R_opp.
      destruct (inv_ge1 a ltac:(lra) ltac:(lra)) as [A2 A3]. destruct (inv_ge1 b ltac:(lra) ltac:(lra)) as [B2 B3].
      pose proof (high_ge1_ok _ A2). pose proof (low_ge1_ok _ B2).
      pose proof (ln_le (Q2R a) (Q2R y) ltac:(lra) D). pose proof (ln_le (Q2R y) (Q2R b) ltac:(lra) U). lra.
    + destruct (Qle_bool (1 # 4) a && Qle_bool 1 b)%bool eqn:C3; [|discriminate].
      apply andb_prop in C3 as [A1 B1]. apply Qle_bool_R in B1, A1. rewrite Q2R_1 in B1. rewrite quarter in A1.
      intros [= <-]. cbn [fst snd]. rewrite !Q2R_opp.
      assert (A0 : Q2R a <= 1).
      { pose proof (qle_dec 1 a) as K. rewrite C1, Q2R_1 in K. exact K. }
      destruct (inv_ge1 a ltac:(lra) A0) as [A2 A3]. pose proof (high_ge1_ok _ A2). pose proof (high_ge1_ok _ B1).
      pose proof (ln_le (Q2R a) (Q2R y) ltac:(lra) D). pose proof (ln_le (Q2R y) (Q2R b) ltac:(lra) U). lra.
Qed.
(* ln x = k ln 2 + ln (x / 2^k) *)
Definition two_to (k : Z) : Q :=
  match k with Z0 => 1%Q | Zpos n => Qmake (2 ^ Zpos n) 1 | Zneg n => Qmake 1 (2 ^ n)%positive end.
Lemma two_to_ok k : 0 < Q2R (two_to k) /\ ln (Q2R (two_to k)) = IZR k * ln 2.
Proof.
  assert (P : forall n, IZR (2 ^ Zpos n) = 2 ^ Pos.to_nat n).
  { intros n. rewrite <- (positive_nat_Z n), <- pow_IZR. reflexivity. }
  assert (Lp : forall n, ln (2 ^ n) = INR n * ln 2).
  { induction n as [|n IH]; [cbn; rewrite ln_1; ring|]. cbn [pow]. rewrite ln_mult, IH, S_INR by (try apply pow_lt; lra). ring. }
  destruct k as [|n|n]; cbn [two_to].
  - rewrite Q2R_1, ln_1. split; [lra|ring].
  - unfold Q2R. cbn [Qnum Qden]. rewrite Rinv_1, Rmult_1_r, P. split; [apply pow_lt; lra|].
    rewrite Lp, INR_IPR. reflexivity.
  - unfold Q2R. cbn [Qnum Qden]. rewrite Rmult_1_l, Pos2Z.inj_pow, P. split; [apply Rinv_0_lt_compat, pow_lt; lra|].
    rewrite ln_Rinv, Lp, INR_IPR by (apply pow_lt; lra). change (IZR (Zneg n)) with (- IPR n). ring.
Qed.
Definition ln2 : itv := log_itv_ge1 2.
Definition log_itv (x : Q) : option itv :=
  let k := (Z.log2 (Qnum x) - Z.log2 (Zpos (Qden x)))%Z in
  if (0 <? Qnum x)%Z then
    match near (x / two_to k) with Some i => Some (iadd (iscale (inject_Z k) ln2) i) | None => None end
  else None.
Theorem log_itv_ok x i : log_itv x = Some i -> 0 < Q2R x /\ inside i (ln (Q2R x)).
Proof.
  unfold log_itv. set (k := (_ - _)%Z). destruct (0 <? Qnum x)%Z eqn:P; [|discriminate].
  apply Z.ltb_lt in P.
  assert (X : 0 < Q2R x).
  { unfold Q2R. apply Rmult_lt_0_compat; [apply IZR_lt; lia|apply Rinv_0_lt_compat, IZR_lt; lia]. }
  destruct (near (x / two_to k)) as [j|] eqn:N; [|discriminate]. intros [= <-]. split; [exact X|].
  apply near_ok in N. destruct (two_to_ok k) as [T1 T2].
  assert (Z0 : ~ (two_to k == 0)%Q) by (intros K; apply Qeq_eqR in K; rewrite Q2R_0 in K; lra).
  rewrite Q2R_div in N by exact Z0. rewrite ln_div in N by assumption. rewrite T2 in N.
  replace (ln (Q2R x)) with (Q2R (inject_Z k) * ln 2 + (ln (Q2R x) - IZR k * ln 2)).
  - apply iadd_ok; [|exact N]. apply iscale_ok. unfold inside, ln2, log_itv_ge1. cbn [fst snd].
    pose proof Q2R_2 as T. rewrite <- T.
    split; [apply low_ge1_ok|apply high_ge1_ok]; rewrite T; lra.
  - unfold inject_Z, Q2R at 1. cbn [Qnum Qden]. rewrite Rinv_1. ring.
Qed.

(* ---------- exp: its series on [0, 1], and powers of e ---------- *)
(* P n is the sum of the first n terms; what is left out is at most 3 times the next one. *)
Fixpoint P (n : nat) (t : R) : R := match n with O => 0 | S m => P m t + t ^ m / INR (fact m) end.
Lemma fact_pos n : 0 < INR (fact n). Proof. apply lt_0_INR, lt_O_fact. Qed.
Lemma next_term n t : t ^ S n / INR (fact (S n)) = t ^ n / INR (fact n) * (t * / INR (S n)).
Proof.
  rewrite fact_simpl, mult_INR. pose proof (fact_pos n). assert (0 < INR (S n)) by (apply lt_0_INR; lia).
  cbn [pow]. field. lra.
Qed.
Lemma term_derive n t : is_derive (fun t => t ^ S n / INR (fact (S n))) t (t ^ n / INR (fact n)).
Proof.
  pose proof (derive_scal _ (/ INR (fact (S n))) _ _ (is_derive_pow (fun t => t) (S n) t 1 (is_derive_id t))) as D.
  apply (is_derive_ext (fun t => / INR (fact (S n)) * t ^ S n)); [intros; unfold Rdiv; apply Rmult_comm|].
  replace (t ^ n / INR (fact n)) with (/ INR (fact (S n)) * (INR (S n) * 1 * t ^ pred (S n))); [exact D|].
  rewrite fact_simpl, mult_INR. pose proof (fact_pos n). assert (0 < INR (S n)) by (apply lt_0_INR; lia).
  cbn [pred]. field. lra.
Qed.
Lemma P_derive n t : is_derive (P (S n)) t (P n t).
Proof.
  induction n as [|n IH].
  - apply (is_derive_ext (fun _ => 1)); [intros; cbn; field|apply derive_const].
  - change (P (S n) t) with (P n t + t ^ n / INR (fact n)).
    apply (derive_plus (P (S n)) (fun t => t ^ S n / INR (fact (S n)))); [exact IH|apply term_derive].
Qed.
Lemma P_0 n : P (S n) 0 = 1.
Proof.
  induction n as [|n IH]; [cbn; field|]. change (P (S n) 0 + 0 ^ S n / INR (fact (S n)) = 1).
  rewrite IH. cbn [pow]. unfold Rdiv. ring.
Qed.
Lemma exp_lower n t : 0 <= t -> P n t <= exp t.
Proof.
  revert t; induction n as [|n IH]; intros t T; [cbn; left; apply exp_pos|].
  pose proof (increasing (fun t => exp t + (-1) * P (S n) t) (fun t => exp t + (-1) * P n t) t T) as I.
  cbv beta in I. rewrite P_0, exp_0 in I. enough (1 + -1 * 1 <= exp t + -1 * P (S n) t) by lra.
  apply I; intros u U.
  - apply derive_plus; [apply is_derive_exp|apply derive_scal, P_derive].
  - pose proof (IH u (proj1 U)). lra.
Qed.
Lemma exp_upper n t : 0 <= t <= 1 -> exp t <= P n t + 3 * (t ^ n / INR (fact n)).
Proof.
  revert t; induction n as [|n IH]; intros t T.
  - cbn [P pow fact INR]. pose proof exp_le_3.
    assert (exp t <= exp 1) by (destruct (proj2 T) as [L1| ->]; [left; now apply exp_increasing|lra]). lra.
  - pose proof (increasing (fun t => P (S n) t + 3 * (t ^ S n / INR (fact (S n))) + (-1) * exp t)
      (fun t => P n t + 3 * (t ^ n / INR (fact n)) + (-1) * exp t) t (proj1 T)) as I.
    cbv beta in I. rewrite P_0, exp_0 in I. replace (0 ^ S n / INR (fact (S n))) with 0 in I by (cbn [pow]; unfold Rdiv; ring).
    enough (1 + 3 * 0 + -1 * 1 <= P (S n) t + 3 * (t ^ S n / INR (fact (S n))) + -1 * exp t) by lra.
    apply I; intros u U.
    + apply derive_plus; [apply derive_plus; [apply P_derive|apply derive_scal, term_derive]|].
      apply derive_scal, is_derive_exp.
    + pose proof (IH u ltac:(lra)). lra.
Qed.
(* tm is a bound of x^j / j! *)
Definition next (x tm : Q) (j : nat) : Q := (tm * (x * Qmake 1 (Pos.of_nat (S j))))%Q.
Lemma next_ok x tm j : Q2R (next x tm j) = Q2R tm * (Q2R x * / INR (S j)).
Proof.
  unfold next. rewrite !Q2R_mult. do 2 f_equal. unfold Q2R. cbn [Qnum Qden].
  rewrite INR_IZR_INZ, Rmult_1_l. do 2 f_equal. lia.
Qed.
Fixpoint E_low (n j : nat) (x tm : Q) : Q :=
  match n with O => 0%Q | S n => down (tm + E_low n (S j) x (down (next x tm j))) end.
Fixpoint E_high (n j : nat) (x tm : Q) : Q :=
  match n with O => up (3 * tm) | S n => up (tm + E_high n (S j) x (up (next x tm j))) end.
Lemma E_low_ok n j x tm : 0 <= Q2R x -> Q2R tm <= Q2R x ^ j / INR (fact j) ->
  Q2R (E_low n j x tm) <= P (n + j) (Q2R x) - P j (Q2R x).
Proof.
  intros X. revert j tm; induction n as [|n IH]; intros j tm T; cbn [E_low]; [rewrite Q2R_0, Nat.add_0_l; lra|].
  eapply Rle_trans; [apply down_ok|]. rewrite Q2R_plus.
  assert (N : Q2R (down (next x tm j)) <= Q2R x ^ S j / INR (fact (S j))).
  { eapply Rle_trans; [apply down_ok|]. rewrite next_ok, next_term. apply Rmult_le_compat_r; [|exact T].
    apply Rmult_le_pos; [exact X|]. left. apply Rinv_0_lt_compat, lt_0_INR. lia. }
  pose proof (IH (S j) _ N) as H. rewrite Nat.add_succ_r in H. rewrite Nat.add_succ_l. cbn [P] in *. lra.
Qed.
Lemma Q2R_3 : Q2R 3 = 3. Proof. unfold Q2R; simpl; field. Qed.
Lemma E_high_ok n j x tm : 0 <= Q2R x -> Q2R x ^ j / INR (fact j) <= Q2R tm ->
  P (n + j) (Q2R x) - P j (Q2R x) + 3 * (Q2R x ^ (n + j) / INR (fact (n + j))) <= Q2R (E_high n j x tm).
Proof.
  intros X. revert j tm; induction n as [|n IH]; intros j tm T; cbn [E_high].
  - eapply Rle_trans; [|apply up_ok]. rewrite Q2R_mult, Q2R_3, Nat.add_0_l. lra.
  - eapply Rle_trans; [|apply up_ok]. rewrite Q2R_plus.
    assert (N : Q2R x ^ S j / INR (fact (S j)) <= Q2R (up (next x tm j))).
    { eapply Rle_trans; [|apply up_ok]. rewrite next_ok, next_term. apply Rmult_le_compat_r; [|exact T].
      apply Rmult_le_pos; [exact X|]. left. apply Rinv_0_lt_compat, lt_0_INR. lia. }
    pose proof (IH (S j) _ N) as H. rewrite Nat.add_succ_r in H. rewrite Nat.add_succ_l. cbn [P] in *. lra.
Qed.
Definition exp_unit (x : Q) : itv := (E_low 30 0 x 1, E_high 30 0 x 1).
Lemma exp_unit_ok x : 0 <= Q2R x <= 1 -> inside (exp_unit x) (exp (Q2R x)).
Proof.
  intros H. assert (T : Q2R x ^ 0 / INR (fact 0) = Q2R 1) by (rewrite Q2R_1; cbn; field). split; cbn [fst snd exp_unit].
  - pose proof (E_low_ok 30 0 x 1 (proj1 H) ltac:(lra)) as A. rewrite Nat.add_0_r in A.
    pose proof (exp_lower 30 (Q2R x) (proj1 H)). change (P 0 (Q2R x)) with 0 in A. lra.
  - pose proof (E_high_ok 30 0 x 1 (proj1 H) ltac:(lra)) as A. rewrite Nat.add_0_r in A.
    pose proof (exp_upper 30 (Q2R x) H). change (P 0 (Q2R x)) with 0 in A. lra.
Qed.
Definition iinv (i : itv) : option itv := if (0 <? Qnum (fst i))%Z then Some (/ snd i, / fst i)%Q else None.
Lemma positive_Q c : (0 <? Qnum c)%Z = true -> 0 < Q2R c.
Proof.
  intros H. apply Z.ltb_lt in H. unfold Q2R.
  apply Rmult_lt_0_compat; [apply IZR_lt; lia|apply Rinv_0_lt_compat, IZR_lt; lia].
Qed.
Lemma nonzero_Q c : Q2R c <> 0 -> ~ (c == 0)%Q.
Proof. intros H K. apply H. apply Qeq_eqR in K. now rewrite K, Q2R_0. Qed.
Lemma iinv_ok i j x : iinv i = Some j -> inside i x -> inside j (/ x).
Proof.
  unfold iinv, inside. destruct (0 <? Qnum (fst i))%Z eqn:Z; [|discriminate]. intros [= <-] [A1 A2].
  apply positive_Q in Z. cbn [fst snd]. rewrite !Q2R_inv by (apply nonzero_Q; lra).
  split; apply Rinv_le_contravar; lra.
Qed.
(* exp x = e^k exp (x - k) *)
Definition e_to (k : Z) : option itv :=
  match k with
  | Zneg n => match iinv (exp_unit 1) with Some i => Some (ipow i (Pos.to_nat n)) | None => None end
  | _ => Some (ipow (exp_unit 1) (Z.to_nat k)) end.
Lemma exp_INR n x : exp (INR n * x) = exp x ^ n.
Proof.
  induction n as [|n IH]; [cbn; now rewrite Rmult_0_l, exp_0|].
  rewrite S_INR, Rmult_plus_distr_r, Rmult_1_l, exp_plus, IH. cbn; ring.
Qed.
Lemma e_to_ok k i : e_to k = Some i -> inside i (exp (IZR k)).
Proof.
  assert (U : inside (exp_unit 1) (exp 1)).
  { replace (exp 1) with (exp (Q2R 1)) by now rewrite Q2R_1. apply exp_unit_ok. rewrite Q2R_1. lra. }
  assert (N : forall n, inside (ipow (exp_unit 1) n) (exp (INR n))).
  { intros n. rewrite <- (Rmult_1_r (INR n)), exp_INR. now apply ipow_ok. }
  destruct k as [|n|n]; unfold e_to.
  - intros H. injection H as <-. apply (N 0%nat).
  - intros H. injection H as <-. change (IZR (Zpos n)) with (IPR n). rewrite <- INR_IPR. apply N.
  - destruct (iinv (exp_unit 1)) as [j|] eqn:I; [|discriminate]. intros H. injection H as <-.
    change (IZR (Zneg n)) with (- IPR n). rewrite <- INR_IPR, <- (Rmult_1_r (INR _)), exp_Ropp, exp_INR, <- pow_inv.
    apply ipow_ok, (iinv_ok _ _ _ I U).
Qed.
Definition exp_at (x : Q) : option itv :=
  let k := Qfloor x in let f := Qred (x - inject_Z k) in
  if Qle_bool 0 f && Qle_bool f 1 && (Z.abs k <=? 4096)%Z then
    match e_to k with Some i => Some (imul i (exp_unit f)) | None => None end
  else None.
Lemma exp_at_ok x i : exp_at x = Some i -> inside i (exp (Q2R x)).
Proof.
  unfold exp_at. set (k := Qfloor x). set (f := Qred _).
  destruct (Qle_bool 0 f && Qle_bool f 1 && _)%bool eqn:B; [|discriminate].
  apply andb_prop in B as [B _]. apply andb_prop in B as [B1 B2]. apply Qle_bool_R in B1, B2.
  rewrite Q2R_0 in B1. rewrite Q2R_1 in B2.
  destruct (e_to k) as [j|] eqn:K; [|discriminate]. intros H. injection H as <-.
  replace (exp (Q2R x)) with (exp (IZR k) * exp (Q2R f)).
  - apply imul_ok; [now apply e_to_ok|apply exp_unit_ok; lra].
  - rewrite <- exp_plus. f_equal. unfold f. rewrite Q2R_red, Q2R_minus.
    replace (Q2R (inject_Z k)) with (IZR k); [ring|]. unfold Q2R, inject_Z. cbn. field.
Qed.
(* exp increases *)
Definition exp_itv (x : itv) : option itv :=
  match exp_at (fst x), exp_at (snd x) with Some i, Some j => Some (fst i, snd j) | _, _ => None end.
Theorem exp_itv_ok x i y : exp_itv x = Some i -> inside x y -> inside i (exp y).
Proof.
  unfold exp_itv. destruct (exp_at (fst x)) as [a|] eqn:A1; [|discriminate].
  destruct (exp_at (snd x)) as [b|] eqn:B1; [|discriminate]. intros H [L1 U1]. injection H as <-.
  apply exp_at_ok in A1, B1. unfold inside in *. cbn [fst snd].
  assert (M : forall u v, u <= v -> exp u <= exp v).
  { intros u v [K| ->]; [left; now apply exp_increasing|lra]. }
  pose proof (M _ _ L1). pose proof (M _ _ U1). lra.
Qed.
