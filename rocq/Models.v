(* Finite models: rational probabilities on finitely many outcomes and a direction of softmax logits, in which a
   difference of two sides is enclosed.  Logs are enclosed (Enclosures.v), powers of ratios are exact. *)
From Coq Require Import Reals List Lra Lia ZArith QArith Qreals Bool.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums Setting Ring Statements Rules Checker Softmax Completeness Enclosures.
Import ListNotations.
Open Scope R_scope.

(* ---------- elements, where each variable is an exact number or the log of one ---------- *)
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

(* ---------- a model ---------- *)
Record model := Model {
  qs : list Q; ps : list Q; mus : list Q;   (* probabilities of outcomes 0, 1, ... *)
  us : list Q;                              (* a direction of the logits of q *)
  paid : list (list Q);                     (* R, A, H *)
  place_ : nat;                             (* the outcome that a value is taken at *)
  values : list Q }.                        (* parameters *)
Definition distribution (n : nat) (l : list Q) : bool :=
  Nat.eqb (List.length l) n && forallb (fun c => 0 <? Qnum c)%Z l && Qeq_bool (fold_right Qplus 0%Q l) 1%Q.
Definition valid (m : model) : bool :=
  let n := List.length (qs m) in distribution n (qs m) && distribution n (ps m) && distribution n (mus m).
Definition look (l : list Q) (x : nat) : Q := nth x l 1%Q.
Definition looked (l : list Q) (x : nat) : R := Q2R (look l x).
Definition parameter (m : model) (i : nat) (nz : bool) : Q :=
  let c := look (values m) i in if nz && qz c then 1%Q else c.
Definition model_par (m : model) (i : nat) (nz : bool) : R := Q2R (parameter m i nz).

Lemma looked_pos l x : forallb (fun c => 0 <? Qnum c)%Z l = true -> 0 < looked l x.
Proof.
  intros H. unfold looked, look. destruct (nth_in_or_default x l 1%Q) as [I| ->].
  - rewrite forallb_forall in H. now apply positive_Q, H.
  - rewrite Q2R_1. lra.
Qed.
Lemma looked_sum l : Sum (seq 0 (List.length l)) (looked l) = Q2R (fold_right Qplus 0%Q l).
Proof.
  enough (K : forall k l', (forall x, nth (k + x) l' 1%Q = nth x l 1%Q) ->
    Sum (seq k (List.length l)) (looked l') = Q2R (fold_right Qplus 0%Q l)) by (now apply K).
  induction l as [|c l IH]; intros k l' H; cbn [List.length seq Sum fold_right].
  - now rewrite Q2R_0.
  - rewrite Q2R_plus, (IH (Datatypes.S k)).
    + unfold looked at 1, look. specialize (H 0%nat). rewrite Nat.add_0_r in H. now rewrite H.
    + intros x. specialize (H (Datatypes.S x)). rewrite Nat.add_succ_r in H. exact H.
Qed.
Lemma distribution_ok n l : distribution n l = true -> (forall x, 0 < looked l x) /\ Sum (seq 0 n) (looked l) = 1.
Proof.
  unfold distribution. intros H. apply andb_prop in H as [H C]. apply andb_prop in H as [A B].
  apply Nat.eqb_eq in A. subst n. split; [intros; now apply looked_pos|].
  rewrite looked_sum. apply Qeq_bool_iff, Qeq_eqR in C. now rewrite C, Q2R_1.
Qed.
Lemma model_par_ok m i : model_par m i true <> 0.
Proof.
  unfold model_par, parameter. cbn [andb]. destruct (qz (look (values m) i)) eqn:Z; [rewrite Q2R_1; lra|].
  intros H. unfold qz in Z. apply Z.eqb_neq in Z. apply Z. unfold Q2R in H.
  apply Rmult_integral in H as [H|H]; [now apply eq_IZR|].
  assert (0 < / IZR (Zpos (Qden (look (values m) i)))) by (apply Rinv_0_lt_compat, IZR_lt; lia). lra.
Qed.

Section Model.
Variable m : model.
Hypothesis ok : valid m = true.
Notation n := (List.length (qs m)).
Lemma q_ok : distribution n (qs m) = true.
Proof. unfold valid in ok. apply andb_prop in ok as [H _]. now apply andb_prop in H as [H _]. Qed.
Lemma p_ok : distribution n (ps m) = true.
Proof. unfold valid in ok. apply andb_prop in ok as [H _]. now apply andb_prop in H as [_ H]. Qed.
Lemma mu_ok : distribution n (mus m) = true.
Proof. unfold valid in ok. now apply andb_prop in ok as [_ H]. Qed.
Definition look_paid (i x : nat) : Q := look (nth i (paid m) []) x.
(* the size of a batch, where a parameter stands for it *)
Definition batch (a : assumptions) : nat :=
  match batch_size (assumed a) with Some (j, nz) => Nat.max 2 (Z.to_nat (Qnum (parameter m j nz))) | None => 2 end.
Variable size : nat.
Definition model_setting : setting :=
  softmax nat (seq 0 n) (fun _ => place_ m) (looked (qs m)) (looked (us m)) (looked (ps m)) (looked (mus m))
    (proj1 (distribution_ok n _ q_ok)) (proj2 (distribution_ok n _ q_ok))
    (proj1 (distribution_ok n _ p_ok)) (proj2 (distribution_ok n _ p_ok))
    (proj1 (distribution_ok n _ mu_ok)) (proj2 (distribution_ok n _ mu_ok))
    (fun i x => Q2R (look_paid i x)) (fun l => Q2R (look_paid 1 (hd O l))) (fun _ => 1) (fun _ => R1_neq_R0)
    (Nat.max 2 size) (Nat.le_max_l 2 size) (fun _ _ _ _ => 0) (fun _ _ l _ => derive_const 0 l).
Notation S := model_setting. Notation par := (model_par m).

Definition score_mean : Q := Qred (fold_right Qplus 0%Q (map (fun x => look (qs m) x * look (us m) x)%Q (seq 0 n))).
Definition score_at (x : nat) : Q := Qred (look (us m) x - score_mean).
Definition value_at (x : nat) (v : var) : option Q :=
  match v with
  | Sample Whole Length _ => Some 1%Q | Sample Whole (Given i) _ => Some (look_paid i x)
  | Sample Whole Any _ => Some (look_paid 1 x) | Sample Whole Score _ => Some (score_at x)
  | Par i nz => Some (parameter m i nz) | _ => None end.
Definition ratio_at (x : nat) (v : var) : option Q :=
  match v with
  | Sample Whole K1 _ => Some (Qred (look (qs m) x / look (ps m) x))
  | Sample Whole W _ => Some (Qred (look (qs m) x / look (mus m) x))
  | Sample Whole LogQ _ => Some (look (qs m) x) | _ => None end.
Lemma score_ok x : s S x = Q2R (score_at x).
Proof.
  unfold S. rewrite softmax_score. unfold score_at. rewrite Q2R_red, Q2R_minus. unfold looked at 1. f_equal.
  unfold score_mean. rewrite Q2R_red. generalize (seq 0 n) as l. induction l as [|y l IH]; cbn [Sum map fold_right].
  - now rewrite Q2R_0.
  - rewrite Q2R_plus, Q2R_mult, IH. reflexivity.
Qed.
Notation at_ x := (alone S x).
Lemma value_at_ok (x : nat) v c : value_at x v = Some c -> env S par (at_ x) v = Q2R c.
Proof.
  destruct v as [[] [] sg|i nz]; cbn [value_at]; try discriminate; intros H; injection H as <-; try reflexivity.
  - symmetry. apply Q2R_1.
  - rewrite env_sum by easy. etransitivity; [apply Rplus_0_r|]. apply score_ok.
  - rewrite env_sum by easy. apply Rplus_0_r.
Qed.
Lemma looked_q x : 0 < looked (qs m) x. Proof. apply (distribution_ok n _ q_ok). Qed.
Lemma looked_p x : 0 < looked (ps m) x. Proof. apply (distribution_ok n _ p_ok). Qed.
Lemma looked_mu x : 0 < looked (mus m) x. Proof. apply (distribution_ok n _ mu_ok). Qed.
Lemma ratio_eq a b : 0 < Q2R a -> 0 < Q2R b -> ln (Q2R (Qred (a / b))) = ln (Q2R a) - ln (Q2R b).
Proof.
  intros A B. rewrite Q2R_red, Q2R_div by (apply nonzero_Q; lra). now apply ln_div.
Qed.
Lemma model_q x : q0 S x = looked (qs m) x. Proof. unfold S. apply softmax_q. Qed.
Lemma ratio_at_ok (x : nat) v r : ratio_at x v = Some r -> value_at x v = None -> 0 < Q2R r -> env S par (at_ x) v = ln (Q2R r).
Proof.
  pose proof (looked_q x). pose proof (looked_p x). pose proof (looked_mu x).
  destruct v as [[] [] sg|i nz]; cbn [ratio_at]; try discriminate; intros R _ _; injection R as <-;
    rewrite env_sum by easy; (etransitivity; [apply Rplus_0_r|]); cbn [each]; rewrite model_q, ?ratio_eq by assumption; reflexivity.
Qed.
Definition weight_at (k : measure) (x : nat) : Q :=
  match k with Mq => look (qs m) x | Mp => look (ps m) x | Mmu => look (mus m) x | _ => 1%Q end.
Definition imean_at (k : measure) (a : ep) (x : nat) : option itv :=
  match iep (value_at x) (ratio_at x) a with
  | Some i => Some (iscale (weight_at k x) i) | None => None end.
Fixpoint isum (l : list (option itv)) : option itv :=
  match l with [] => Some (exact 0) | Some i :: l => match isum l with Some j => Some (iadd i j) | None => None end
  | None :: _ => None end.
Definition imean (k : measure) (a : ep) : option itv :=
  match k with
  | Msample => imean_at Msample a (place_ m)
  | _ => isum (map (imean_at k a) (seq 0 n)) end.
Definition iatom (x : atom) : option itv := match x with Mean Single k a => imean k a | _ => None end.
Fixpoint iproduct (l : list atom) : option itv :=
  match l with [] => Some (exact 1)
  | x :: l => match iatom x, iproduct l with Some i, Some j => Some (imul i j) | _, _ => None end end.
Definition no_ratio (_ : var) : option Q := None.
Definition par_value (v : var) : option Q := match v with Par i nz => Some (parameter m i nz) | _ => None end.
Fixpoint iside (a : side) : option itv :=
  match a with [] => Some (exact 0)
  | (c, l) :: a => match iep par_value no_ratio c, iproduct l, iside a with
      | Some i, Some j, Some k => Some (iadd (imul i j) k) | _, _, _ => None end end.

Let parS_ok : forall i, par i true <> 0. Proof. apply model_par_ok. Qed.
Lemma imean_at_ok k a (x : nat) i : imean_at k a x = Some i ->
  inside i (Q2R (weight_at k x) * den (env S par (at_ x)) a).
Proof.
  unfold imean_at. destruct (iep _ _ a) as [e|] eqn:X; [|discriminate]. intros H. injection H as <-.
  apply iscale_ok. revert X. apply iep_ok; [now apply env_ok|apply value_at_ok|apply ratio_at_ok].
Qed.
Lemma isum_ok k a l i : isum (map (imean_at k a) l) = Some i ->
  inside i (Sum l (fun x => Q2R (weight_at k x) * den (env S par (at_ x)) a)).
Proof.
  revert i; induction l as [|x l IH]; intros i; cbn [map isum Sum].
  - intros H. injection H as <-. rewrite <- Q2R_0. apply exact_ok.
  - destruct (imean_at k a x) as [e|] eqn:X; [|discriminate]. destruct (isum _); [|discriminate].
    intros H. injection H as <-. apply iadd_ok; [now apply imean_at_ok|now apply IH].
Qed.
Lemma weight_ok k x : density S k (theta S) x = Q2R (weight_at k x).
Proof.
  destruct k; try reflexivity; try (cbn; now rewrite Q2R_1).
  cbn [density weight_at]. exact (model_q x).
Qed.
Lemma imean_ok k a i : imean k a = Some i -> inside i (mean S k Single (fun w => den (env S par w) a)).
Proof.
  unfold mean, mean_at. cbn [draws E]. intros H.
  assert (B : forall k' (l : list nat), isum (map (imean_at k' a) l) = Some i ->
    inside i (Sum l (fun x => density S k' (theta S) x * den (env S par (at_ x)) a))).
  { intros k' l K. apply isum_ok in K. rewrite (Sum_ext l _ (fun x => Q2R (weight_at k' x) * den (env S par (at_ x)) a)); [exact K|].
    intros x _. now rewrite weight_ok. }
  destruct k; cbn [imean] in H; [exact (B _ _ H)..|].
  apply imean_at_ok in H. cbn [weight_at] in H. rewrite Q2R_1, Rmult_1_l in H.
  cbn [support Sum density]. rewrite Rmult_1_l, Rplus_0_r. exact H.
Qed.
Lemma iproduct_ok l i : iproduct l = Some i -> inside i (dproduct S par l).
Proof.
  revert i; induction l as [|x l IH]; intros i; cbn [iproduct dproduct].
  - intros [= <-]. rewrite <- Q2R_1. apply exact_ok.
  - destruct (iatom x) as [a|] eqn:X; [|discriminate]. destruct (iproduct l); [|discriminate].
    intros [= <-]. apply imul_ok; [|now apply IH]. destruct x as [[] | |]; try discriminate. now apply imean_ok.
Qed.
Lemma iside_ok a i : iside a = Some i -> inside i (dside S par a).
Proof.
  revert i; induction a as [|[c l] a IH]; intros i; cbn [iside dside].
  - intros [= <-]. rewrite <- Q2R_0. apply exact_ok.
  - destruct (iep _ _ c) as [e|] eqn:X; [|discriminate]. destruct (iproduct l) eqn:P; [|discriminate].
    destruct (iside a); [|discriminate]. intros [= <-]. apply iadd_ok; [|now apply IH].
    apply imul_ok; [|now apply iproduct_ok]. revert X. apply iep_ok.
    + apply penv_ok, parS_ok.
    + intros [|i' nz] d; cbn; [discriminate|]. now intros [= <-].
    + discriminate.
Qed.

(* ---------- a refutation ---------- *)
Definition contradicts (r : relation) (i : itv) : bool :=
  (0 <? Qnum (fst i))%Z || match r with Equal => (Qnum (snd i) <? 0)%Z | AtMost => false end.
Lemma contradicts_ok r i x : contradicts r i = true -> inside i x ->
  match r with Equal => x <> 0 | AtMost => 0 < x end.
Proof.
  unfold contradicts, inside. intros H [A B]. apply orb_prop in H as [H|H].
  - apply positive_Q in H. destruct r; lra.
  - destruct r; [|discriminate]. apply Z.ltb_lt in H.
    assert (0 < Q2R (Qopp (snd i))) by (apply positive_Q, Z.ltb_lt; cbn; lia). rewrite Q2R_opp in *. lra.
Qed.
(* premises, which a model need not satisfy: here those that enclose to 0 = 0, as n = 1 + m does *)
Definition zero_here (x : side * side) : bool :=
  match iside (normal (fst x ++ minus (snd x))) with Some i => Qeq_bool (fst i) 0 && Qeq_bool (snd i) 0 | None => false end.
Definition size_here (a : assumptions) : bool :=
  match batch_size (assumed a) with
  | Some (j, nz) => Qeq_bool (parameter m j nz) (inject_Z (Z.of_nat (Nat.max 2 size))) | None => true end.
Definition satisfies (a : assumptions) : bool :=
  match equal_always (assumed a), regions a with [], [] => true | _, _ => false end
  && forallb zero_here (equal_now (assumed a)) && size_here a && forallb (fun i => 0 <? Qnum (look (values m) i))%Z (positive a).
Lemma zero_here_ok x : zero_here x = true -> dside S par (fst x) = dside S par (snd x).
Proof.
  unfold zero_here. destruct (iside _) as [i|] eqn:I; [|discriminate]. intros H. apply andb_prop in H as [A B].
  apply Qeq_bool_iff, Qeq_eqR in A, B. apply iside_ok in I. unfold inside in I.
  rewrite (normal_ok S par parS_ok), app_ok, (minus_ok S par parS_ok), A, B, Q2R_0 in I. lra.
Qed.
Lemma satisfies_ok a : satisfies a = true -> satisfied S par a.
Proof.
  unfold satisfies, satisfied, holds, size_here. intros H. apply andb_prop in H as [H P]. apply andb_prop in H as [H Z].
  apply andb_prop in H as [H N]. destruct (equal_always (assumed a)); [|discriminate]. destruct (regions a); [|discriminate].
  rewrite forallb_forall in N, P. repeat split; try easy.
  - intros x y I. apply (zero_here_ok (x, y)), N, I.
  - intros j nz B. rewrite B in Z. apply Qeq_bool_iff, Qeq_eqR in Z. unfold model_par. rewrite Z.
    change (Setting.size S) with (Nat.max 2 size). rewrite INR_IZR_INZ. unfold inject_Z, Q2R. cbn [Qnum Qden]. field.
  - intros i I. pose proof (P i I) as Q. unfold model_par, parameter. cbn [andb]. destruct (qz _) eqn:Y; [rewrite Q2R_1; lra|now apply positive_Q].
Qed.
Definition refutes (a : assumptions) (known : list side) (c : part) : bool :=
  satisfies a && match rows c, zeros (assumed a) known (proof c) with
  | [], Some z => match iside (normal (left c ++ minus (right c) ++ z)) with
      | Some i => contradicts (rel c) i | None => false end
  | _, _ => false end.
Lemma refutes_ok a known c : List.Forall (fun z => dside S par z = 0) known -> refutes a known c = true ->
  satisfied S par a /\ ~ true_part S par c.
Proof.
  intros K. unfold refutes. intros H. apply andb_prop in H as [A H]. pose proof (satisfies_ok a A) as Sa.
  split; [exact Sa|]. destruct (rows c); [|discriminate].
  destruct (zeros (assumed a) known (proof c)) as [z|] eqn:Z; [|discriminate].
  destruct (iside _) as [i|] eqn:I; [|discriminate]. apply iside_ok in I.
  pose proof (contradicts_ok _ _ _ H I) as C.
  rewrite (normal_ok S par parS_ok), !app_ok, (minus_ok S par parS_ok) in C.
  rewrite (zeros_ok S par parS_ok _ _ _ _ (proj1 Sa) K Z) in C.
  unfold true_part. destruct (rel c); lra.
Qed.
End Model.

(* ---------- scripts ---------- *)
Inductive ending := Proved | Refuted (m : model) | Unique (f : family).
Record script := Script { given_ : assumptions; parts : list part; end_ : ending }.
Fixpoint learn_all (l : list part) (known : list side) : list side :=
  match l with [] => known | c :: l => learn_all l (learn c known) end.
Definition check (s : script) : bool :=
  match end_ s with
  | Proved => accept (given_ s) (parts s)
  | Refuted m => match rev (parts s) with
      | c :: before => valid m && accept (given_ s) (rev before) && refutes m (batch m (given_ s)) (given_ s) (learn_all (rev before) []) c
      | [] => false end
  | Unique f => match rev (parts s) with
      | c :: before => accept (given_ s) (rev before) && solves (given_ s) (learn_all (rev before) []) c f
      | [] => false end end.
(* What a script says: its parts hold in every setting; or there is a setting in which the last one fails; or a function
   of k1 makes the last one hold in all settings just where it is one of a family. *)
Definition meaning (s : script) : Prop :=
  match end_ s with
  | Proved => forall S par, (forall i, par i true <> 0) -> satisfied S par (given_ s) ->
      List.Forall (true_part S par) (parts s)
  | Refuted _ => exists S par c, (forall i, par i true <> 0) /\ satisfied S par (given_ s) /\
      nth_error (rev (parts s)) 0 = Some c /\ ~ true_part S par c
  | Unique f => exists c, nth_error (rev (parts s)) 0 = Some c /\ solved_by (given_ s) c f end.
Lemma learn_all_ok S par (P : forall i, par i true <> 0) l known : List.Forall (true_part S par) l ->
  List.Forall (fun z => dside S par z = 0) known -> List.Forall (fun z => dside S par z = 0) (learn_all l known).
Proof.
  revert known; induction l as [|c l IH]; intros known T K; [exact K|]. inversion_clear T as [|? ? T1 T2].
  cbn [learn_all]. apply IH; [exact T2|]. unfold learn, true_part in *.
  destruct (rel c); apply List.Forall_app; (split; [exact K|]); constructor; auto.
  rewrite app_ok, (minus_ok S par P), T1. ring.
Qed.
(* The one theorem: whatever the checker accepts is so. *)
Theorem check_sound s : check s = true -> meaning s.
Proof.
  unfold check, meaning. destruct (end_ s) as [|m|f].
  - intros H. now apply accept_sound.
  - destruct (rev (parts s)) as [|c before] eqn:B; [discriminate|]. intros H.
    apply andb_prop in H as [H R1]. apply andb_prop in H as [V A].
    set (n := batch m (given_ s)) in *. exists (model_setting m V n), (model_par m), c. pose proof (model_par_ok m) as P.
    assert (Sa : satisfied (model_setting m V n) (model_par m) (given_ s)).
    { apply satisfies_ok. unfold refutes in R1. now apply andb_prop in R1 as [R1 _]. }
    pose proof (accept_sound _ _ A _ _ P Sa) as T.
    pose proof (learn_all_ok _ _ P _ [] T (List.Forall_nil _)) as K.
    split; [exact P|]. split; [exact Sa|]. split; [reflexivity|]. eapply (proj2 (refutes_ok m V n _ _ _ K R1)).
  - destruct (rev (parts s)) as [|c before] eqn:B; [discriminate|]. intros H. apply andb_prop in H as [A H].
    exists c. split; [reflexivity|]. apply (solves_ok _ _ _ _ H). intros S par P Sa.
    exact (learn_all_ok _ _ P _ [] (accept_sound _ _ A _ _ P Sa) (List.Forall_nil _)).
Qed.
