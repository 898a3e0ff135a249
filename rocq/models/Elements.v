(* Enclosures of elements, where each variable is an exact number or the log of one: powers of ratios are exact. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Setting Ring Enclosures.
Import ListNotations.
Open Scope R_scope.

Section Elements.
Variable value : var -> option Q.
Variable ratio : var -> option Q.

Definition ivar (v : var) : option itv :=
  match value v with Some c => Some (exact c)
  | None => match ratio v with Some r => log_itv r | None => None end end.
Definition ipower (v : var) (k : Z) : option itv :=
  if invertible v then
    match value v, k with
    | Some c, Zneg n => Some (exact (Qred (qpow (/ c) (Pos.to_nat n))))
    | Some c, _ => Some (exact (Qred (qpow c (Z.to_nat k))))
    | None, _ => None end
  else match ivar v with Some i => Some (ipow i (Z.to_nat k)) | None => None end.
Fixpoint imon (m : mon) : option itv :=
  match m with
  | [] => Some (exact 1)
  | (v, k) :: m => match ipower v k, imon m with Some i, Some j => Some (imul i j) | _, _ => None end end.
Definition qz_pow (r : Q) (k : Z) : Q :=
  Qred (match k with Zneg n => qpow (/ r) (Pos.to_nat n) | _ => qpow r (Z.to_nat k) end).
(* exp of whole multiples of log ratios is exact: a factor d; the rest of the exponent is enclosed *)
Definition whole (c : Q) (m : mon) : option Q :=
  match m with
  | [(v, 1%Z)] => match value v, ratio v with
      | None, Some r => if (Qden c =? 1)%positive && (0 <? Qnum r)%Z then Some (qz_pow r (Qnum c)) else None
      | _, _ => None end
  | _ => None end.
Fixpoint iexponent (e : lin) : option (Q * itv) :=
  match e with
  | [] => Some (1%Q, exact 0)
  | (c, m) :: e =>
      match iexponent e, whole c m with
      | Some (d, i), Some f => Some (Qred (f * d), i)
      | Some (d, i), None => match imon m with Some j => Some (d, iadd (iscale c j) i) | None => None end
      | None, _ => None end end.
Definition iexp (e : lin) : option itv :=
  match iexponent e with
  | Some (d, i) =>
      if Qeq_bool (fst i) 0 && Qeq_bool (snd i) 0 then Some (exact d)
      else match exp_itv i with Some j => Some (iscale d j) | None => None end
  | None => None end.
Fixpoint iep (a : ep) : option itv :=
  match a with
  | [] => Some (exact 0)
  | (c, m, e) :: a =>
      match imon m, iexp e, iep a with
      | Some i, Some d, Some j => Some (iadd (iscale c (imul i d)) j) | _, _, _ => None end end.

Variable env : var -> R.
Hypothesis env_ok : forall v, invertible v = true -> env v <> 0.
Hypothesis value_ok : forall v c, value v = Some c -> env v = Q2R c.
Hypothesis ratio_ok : forall v r, ratio v = Some r -> value v = None -> 0 < Q2R r -> env v = ln (Q2R r).
Lemma ivar_ok v i : ivar v = Some i -> inside i (env v).
Proof.
  unfold ivar. destruct (value v) as [c|] eqn:V.
  - intros [= <-]. rewrite (value_ok v c V). apply exact_ok.
  - destruct (ratio v) as [r|] eqn:K; [|discriminate]. intros H. apply log_itv_ok in H as [P H].
    now rewrite (ratio_ok v r K V P).
Qed.
Lemma ipower_ok v k i : ipower v k = Some i -> inside i (power v (env v) k).
Proof.
  unfold ipower, power. destruct (invertible v) eqn:I.
  - destruct (value v) as [c|] eqn:V; [|discriminate]. pose proof (env_ok v I) as N.
    rewrite (value_ok v c V) in *. apply nonzero_Q in N as N'.
    destruct k as [|n|n]; intros [= <-].
    + replace (powerRZ (Q2R c) 0) with (Q2R (Qred (qpow c (Z.to_nat 0)))); [apply exact_ok|].
      rewrite Q2R_red, qpow_ok. reflexivity.
    + replace (powerRZ (Q2R c) (Zpos n)) with (Q2R (Qred (qpow c (Z.to_nat (Zpos n))))); [apply exact_ok|].
      rewrite Q2R_red, qpow_ok. reflexivity.
    + replace (powerRZ (Q2R c) (Zneg n)) with (Q2R (Qred (qpow (/ c) (Pos.to_nat n)))); [apply exact_ok|].
      rewrite Q2R_red, qpow_ok, Q2R_inv by exact N'. cbn. now rewrite pow_inv.
  - destruct (ivar v) as [j|] eqn:J; [|discriminate]. intros [= <-]. now apply ipow_ok, ivar_ok.
Qed.
Lemma imon_ok m i : imon m = Some i -> inside i (dmon env m).
Proof.
  revert i; induction m as [|[v k] m IH]; intros i; cbn [imon dmon].
  - intros [= <-]. rewrite <- Q2R_1. apply exact_ok.
  - destruct (ipower v k) as [a|] eqn:P; [|discriminate]. destruct (imon m); [|discriminate].
    intros [= <-]. apply imul_ok; [now apply ipower_ok|now apply IH].
Qed.
Lemma qz_pow_ok r k : 0 < Q2R r -> Q2R (qz_pow r k) = exp (IZR k * ln (Q2R r)).
Proof.
  intros P. unfold qz_pow. rewrite Q2R_red.
  assert (N : ~ (r == 0)%Q) by (apply nonzero_Q; lra).
  destruct k as [|n|n].
  - rewrite qpow_ok. cbn. now rewrite Rmult_0_l, exp_0.
  - rewrite qpow_ok. change (IZR (Zpos n)) with (IPR n). rewrite <- INR_IPR, exp_INR, exp_ln by exact P. reflexivity.
  - rewrite qpow_ok, Q2R_inv by exact N. change (IZR (Zneg n)) with (- IPR n).
    rewrite <- INR_IPR, Ropp_mult_distr_l_reverse, exp_Ropp, exp_INR, exp_ln by exact P. now rewrite pow_inv.
Qed.
Lemma whole_ok c m f : whole c m = Some f -> Q2R f = exp (Q2R c * dmon env m).
Proof.
  unfold whole. destruct m as [|[v [|[]|]] [|]]; try discriminate.
  destruct (value v) eqn:V; [discriminate|]. destruct (ratio v) as [r|] eqn:K; [|discriminate].
  destruct (_ && _)%bool eqn:B; [|discriminate]. intros H. injection H as <-.
  apply andb_prop in B as [B1 B2]. apply Pos.eqb_eq in B1. apply positive_Q in B2.
  rewrite qz_pow_ok by exact B2. cbn [dmon]. rewrite power_1, Rmult_1_r, (ratio_ok v r K V B2). do 2 f_equal.
  unfold Q2R. rewrite B1, Rinv_1. ring.
Qed.
Lemma iexponent_ok e d i : iexponent e = Some (d, i) -> exists x, inside i x /\ Q2R d * exp x = exp (dlin env e).
Proof.
  revert d i; induction e as [|[c m] e IH]; intros d i; cbn [iexponent dlin].
  - intros H. injection H as <- <-. exists 0. rewrite <- Q2R_0 at 1. split; [apply exact_ok|].
    rewrite Q2R_1, exp_0. ring.
  - destruct (iexponent e) as [[d' i']|]; [|discriminate]. destruct (IH _ _ eq_refl) as [x [X1 X2]].
    destruct (whole c m) as [f|] eqn:F.
    + intros H. injection H as <- <-. exists x. split; [exact X1|].
      rewrite Q2R_red, Q2R_mult, Rmult_assoc, X2, (whole_ok _ _ _ F), <- exp_plus. reflexivity.
    + destruct (imon m) as [j|] eqn:M; [|discriminate]. intros H. injection H as <- <-.
      exists (Q2R c * dmon env m + x). split; [apply iadd_ok; [now apply iscale_ok, imon_ok|exact X1]|].
      rewrite !exp_plus, <- X2. ring.
Qed.
Lemma iexp_ok e i : iexp e = Some i -> inside i (exp (dlin env e)).
Proof.
  unfold iexp. destruct (iexponent e) as [[d j]|] eqn:X; [|discriminate].
  apply iexponent_ok in X as [x [X1 <-]]. destruct (_ && _)%bool eqn:B.
  - intros H. injection H as <-. apply andb_prop in B as [B1 B2]. apply Qeq_bool_iff, Qeq_eqR in B1, B2.
    unfold inside in X1. rewrite B1, B2, Q2R_0 in X1. replace x with 0 by lra. rewrite exp_0, Rmult_1_r. apply exact_ok.
  - destruct (exp_itv j) as [k|] eqn:K; [|discriminate]. intros H. injection H as <-.
    apply iscale_ok. exact (exp_itv_ok _ _ _ K X1).
Qed.
Lemma iep_ok a i : iep a = Some i -> inside i (den env a).
Proof.
  revert i; induction a as [|[[c m] e] a IH]; intros i; cbn [iep den dterm].
  - intros [= <-]. rewrite <- Q2R_0. apply exact_ok.
  - destruct (imon m) as [j|] eqn:M; [|discriminate]. destruct (iexp e) as [d|] eqn:X; [|discriminate].
    destruct (iep a) as [k|]; [|discriminate]. intros [= <-]. apply iadd_ok; [|now apply IH].
    rewrite Rmult_assoc. apply iscale_ok, imul_ok; [now apply imon_ok|now apply iexp_ok].
Qed.
End Elements.

