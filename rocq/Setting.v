(* One sample: a finite space, a policy q that moves along one direction of theta, a reference p, a sampler mu.

   q is positive and differentiable at theta, and a distribution for every t.  Nothing else is asked: softmax logits are one
   instance (Softmax.v).  Stop-gradient is a frozen copy of log q: a loss is a function of the live log q,
   of the frozen one, and of the outcome, and `grad` differentiates the live one. *)
From Coq Require Import Reals List Lra.
From Coquelicot Require Import Coquelicot.
From Klsym Require Import Sums.
Import ListNotations.
Open Scope R_scope.

Record setting := {
  outcome : Type;
  outcomes : list outcome;
  here : outcome;                      (* the one sample of which a value is taken *)
  theta : R;
  q : R -> outcome -> R;
  p : outcome -> R;
  mu : outcome -> R;
  q_pos : forall x, 0 < q theta x;
  q_sum : forall t, Sum outcomes (q t) = 1;
  q_diff : forall x, ex_derive (fun t => q t x) theta;
  p_pos : forall x, 0 < p x;
  p_sum : Sum outcomes p = 1;
  mu_pos : forall x, 0 < mu x;
  mu_sum : Sum outcomes mu = 1;
  given : nat -> outcome -> R;         (* rewards and other quantities that theta does not move *)
  length : outcome -> R;
  length_nonzero : forall x, length x <> 0;
  fn : nat -> nat -> R -> outcome -> R; (* generic functions and their derivatives along log q *)
  fn_diff : forall i d l x, is_derive (fun l => fn i d l x) l (fn i (S d) l x) }.

Inductive measure := Mq | Mp | Mmu | Mcount | Msample.

Section OneSample.
Variable S : setting.
Notation X := (outcome S).

Definition q0 : X -> R := q S (theta S).
Definition density (m : measure) (t : R) (x : X) : R :=
  match m with Mq => q S t x | Mp => p S x | Mmu => mu S x | _ => 1 end.
(* E_m[f], the sum over all outcomes, or the value at the one sample *)
Definition E (m : measure) (t : R) (f : X -> R) : R :=
  match m with Msample => f (here S) | _ => Sum (outcomes S) (fun x => density m t x * f x) end.
Definition mean (m : measure) (f : X -> R) : R := E m (theta S) f.
Definition s (x : X) : R := Derive (fun t => ln (q S t x)) (theta S).

Definition loss := R -> R -> X -> R.
Definition grad (L : loss) (x : X) : R := Derive (fun t => L (ln (q S t x)) (ln (q0 x)) x) (theta S).
Definition k1_at (l : R) (x : X) : R := l - ln (p S x).
Definition w_at (l : R) (x : X) : R := l - ln (mu S x).

Lemma E_ext m t f g : (forall x, f x = g x) -> E m t f = E m t g.
Proof. intros H. destruct m; cbn [E]; try (apply Sum_ext; intros; now rewrite H). apply H. Qed.
Lemma E_plus m t f g : E m t (fun x => f x + g x) = E m t f + E m t g.
Proof.
  destruct m; cbn [E]; try (rewrite <- Sum_plus; apply Sum_ext; intros; ring). reflexivity.
Qed.
Lemma E_scal m t c f : E m t (fun x => c * f x) = c * E m t f.
Proof.
  destruct m; cbn [E]; try (rewrite <- Sum_scal; apply Sum_ext; intros; ring). reflexivity.
Qed.
Lemma E_zero m t : E m t (fun _ => 0) = 0.
Proof. rewrite (E_ext m t _ (fun _ => 0 * 0)) by (intros; ring). rewrite E_scal; ring. Qed.
Lemma E_minus m t f g : E m t (fun x => f x - g x) = E m t f - E m t g.
Proof.
  rewrite (E_ext m t _ (fun x => f x + (-1) * g x)) by (intros; ring). rewrite E_plus, E_scal; ring.
Qed.
Lemma q0_pos x : 0 < q0 x. Proof. apply q_pos. Qed.
Lemma density_pos m x : 0 < density m (theta S) x.
Proof. destruct m; cbn; try lra; [apply q_pos|apply p_pos|apply mu_pos]. Qed.
Definition at_place (m : measure) (P : X -> Prop) : Prop :=
  match m with Msample => P (here S) | _ => forall x, In x (outcomes S) -> P x end.
Lemma mean_nonneg m f : at_place m (fun x => 0 <= f x) -> 0 <= mean m f.
Proof.
  intros H. assert (A : forall n, (forall x, In x (outcomes S) -> 0 <= f x) ->
    0 <= Sum (outcomes S) (fun x => density n (theta S) x * f x)).
  { intros n K. apply Sum_nonneg; intros x I. apply Rmult_le_pos; [left; apply density_pos|auto]. }
  destruct m; cbn in H; [exact (A Mq H)|exact (A Mp H)|exact (A Mmu H)|exact (A Mcount H)|exact H].
Qed.

(* ---------- the score function ---------- *)
Lemma s_derive x : is_derive (fun t => ln (q S t x)) (theta S) (s x).
Proof.
  apply Derive_correct. eexists. apply derive_ln; [apply q_pos|apply Derive_correct, q_diff].
Qed.
Lemma q_derive x : is_derive (fun t => q S t x) (theta S) (q0 x * s x).
Proof.
  pose proof (derive_ln (fun t => q S t x) (theta S) _ (q_pos S x) (Derive_correct _ _ (q_diff S x))) as D.
  assert (U : s x = Derive (fun t => q S t x) (theta S) / q S (theta S) x) by exact (is_derive_unique _ _ _ D).
  rewrite U.
  replace (_ * _) with (Derive (fun t => q S t x) (theta S)); [apply Derive_correct, q_diff|].
  unfold q0. field. apply Rgt_not_eq, q_pos.
Qed.

(* score mean zero *)
Theorem score_mean_zero : mean Mq s = 0.
Proof.
  assert (D : is_derive (fun t => Sum (outcomes S) (q S t)) (theta S) (mean Mq s)).
  { apply Sum_derive; intros; apply q_derive. }
  apply is_derive_unique in D. rewrite <- D, (Derive_ext _ (fun _ => 1)) by (intros; apply q_sum).
  apply Derive_const.
Qed.

(* normalisation *)
Definition normed (m : measure) : bool := match m with Mcount => false | _ => true end.
Theorem normalisation m c : normed m = true -> mean m (fun _ => c) = c.
Proof.
  assert (A : forall f, Sum (outcomes S) f = 1 -> Sum (outcomes S) (fun x => f x * c) = c).
  { intros f H. rewrite (Sum_ext _ _ (fun x => c * f x)) by (intros; ring). rewrite Sum_scal, H; ring. }
  destruct m; cbn; intros; try discriminate; try reflexivity; apply A;
    [apply q_sum|apply p_sum|apply mu_sum].
Qed.

(* chain rule *)
Theorem chain_rule (L : loss) x d :
  is_derive (fun l => L l (ln (q0 x)) x) (ln (q0 x)) d ->
  is_derive (fun t => L (ln (q S t x)) (ln (q0 x)) x) (theta S) (d * s x).
Proof.
  intros H. apply (derive_comp (fun l => L l (ln (q0 x)) x) (fun t => ln (q S t x))); [exact H|apply s_derive].
Qed.

(* log-derivative: the measure moves, and what is averaged does *)
Theorem log_derivative m (f : R -> X -> R) (f' : X -> R) :
  (forall x, is_derive (fun t => f t x) (theta S) (f' x)) ->
  is_derive (fun t => E m t (f t)) (theta S)
    ((match m with Mq => mean Mq (fun x => f (theta S) x * s x) | _ => 0 end) + mean m f').
Proof.
  intros H. assert (A : forall n, n <> Mq -> n <> Msample ->
     is_derive (fun t => Sum (outcomes S) (fun x => density n t x * f t x)) (theta S)
       (Sum (outcomes S) (fun x => density n (theta S) x * f' x))).
  { intros n N N'. apply (Sum_derive _ (fun t x => density n t x * f t x)). intros x _.
    destruct n; try easy; cbn [density]; now apply derive_scal. }
  destruct m; cbn [E mean]; rewrite ?Rplus_0_l; try (apply A; discriminate); [|apply H].
  unfold mean. cbn [E]. rewrite <- Sum_plus. apply (Sum_derive _ (fun t x => density Mq t x * f t x)). intros x _.
  replace (_ + _) with (q0 x * s x * f (theta S) x + q0 x * f' x) by (cbn [density]; unfold q0; ring).
  apply (derive_mult (fun t => q S t x) (fun t => f t x)); [apply q_derive|apply H].
Qed.

(* change of measure *)
Theorem change_of_measure m n f : m <> Msample -> n <> Msample ->
  mean m f = mean n (fun x => f x * (density m (theta S) x / density n (theta S) x)).
Proof.
  intros M N. assert (A : forall a b, Sum (outcomes S) (fun x => density a (theta S) x * f x)
    = Sum (outcomes S) (fun x => density b (theta S) x * (f x * (density a (theta S) x / density b (theta S) x)))).
  { intros a b. apply Sum_ext; intros x _. field. apply Rgt_not_eq, density_pos. }
  destruct m, n; try easy; unfold mean; cbn [E]; apply A.
Qed.
End OneSample.
