(* Finite sums of reals and their derivatives. *)
From Coq Require Import Reals List Lra.
From Coquelicot Require Import Coquelicot.
Import ListNotations.
Open Scope R_scope.

Section Sums.
Context {X : Type}.
Implicit Types (xs : list X) (f g : X -> R).

Fixpoint Sum xs f : R := match xs with [] => 0 | x :: rest => f x + Sum rest f end.

Lemma Sum_ext xs f g : (forall x, In x xs -> f x = g x) -> Sum xs f = Sum xs g.
Proof.
  induction xs as [|x xs IH]; intros H; simpl; [reflexivity|].
  rewrite (H x), IH; auto using in_eq; intros; apply H; now right.
Qed.
Lemma Sum_plus xs f g : Sum xs (fun x => f x + g x) = Sum xs f + Sum xs g.
Proof. induction xs as [|x xs IH]; simpl; [ring|rewrite IH; ring]. Qed.
Lemma Sum_scal xs c f : Sum xs (fun x => c * f x) = c * Sum xs f.
Proof. induction xs as [|x xs IH]; simpl; [ring|rewrite IH; ring]. Qed.
Lemma Sum_minus xs f g : Sum xs (fun x => f x - g x) = Sum xs f - Sum xs g.
Proof. induction xs as [|x xs IH]; simpl; [ring|rewrite IH; ring]. Qed.
Lemma Sum_zero xs : Sum xs (fun _ => 0) = 0.
Proof. induction xs; simpl; lra. Qed.
Lemma Sum_app xs ys f : Sum (xs ++ ys) f = Sum xs f + Sum ys f.
Proof. induction xs as [|x xs IH]; cbn [app Sum]; [ring|rewrite IH; ring]. Qed.
Lemma Sum_nonneg xs f : (forall x, In x xs -> 0 <= f x) -> 0 <= Sum xs f.
Proof.
  induction xs as [|x xs IH]; intros H; simpl; [lra|].
  pose proof (H x (in_eq _ _)). enough (0 <= Sum xs f) by lra.
  apply IH; intros; apply H; now right.
Qed.
Lemma Sum_derive xs (f : R -> X -> R) (f' : X -> R) t :
  (forall x, In x xs -> is_derive (fun t => f t x) t (f' x)) ->
  is_derive (fun t => Sum xs (f t)) t (Sum xs f').
Proof.
  induction xs as [|x xs IH]; intros H; simpl.
  - apply (is_derive_const (V := R_NormedModule) 0).
  - apply (is_derive_plus (V := R_NormedModule) (fun t => f t x) (fun t => Sum xs (f t))).
    + apply H; now left.
    + apply IH; intros; apply H; now right.
Qed.
End Sums.
Lemma Sum_map {X Y} (h : X -> Y) xs (f : Y -> R) : Sum (map h xs) f = Sum xs (fun x => f (h x)).
Proof. induction xs as [|x xs IH]; cbn [map Sum]; [ring|rewrite IH; ring]. Qed.
Lemma Sum_flat_map {X Y} (h : X -> list Y) xs (f : Y -> R) : Sum (flat_map h xs) f = Sum xs (fun x => Sum (h x) f).
Proof. induction xs as [|x xs IH]; cbn [flat_map Sum]; [ring|now rewrite Sum_app, IH]. Qed.
Lemma Sum_Sum {X Y} (xs : list X) (ys : list Y) (f : X -> Y -> R) :
  Sum xs (fun x => Sum ys (f x)) = Sum ys (fun y => Sum xs (fun x => f x y)).
Proof.
  induction xs as [|x xs IH]; cbn [Sum]; [now rewrite Sum_zero|]. rewrite IH, <- Sum_plus. reflexivity.
Qed.

(* Derivatives of products, multiples, compositions and logs, in the form in which they are used. *)
Lemma derive_mult (a b : R -> R) t a' b' :
  is_derive a t a' -> is_derive b t b' -> is_derive (fun t => a t * b t) t (a' * b t + a t * b').
Proof. intros A B. apply (is_derive_mult a b t a' b' A B). intros; apply Rmult_comm. Qed.
Lemma derive_plus (a b : R -> R) t a' b' :
  is_derive a t a' -> is_derive b t b' -> is_derive (fun t => a t + b t) t (a' + b').
Proof. intros A B. now apply (is_derive_plus (V := R_NormedModule) a b). Qed.
Lemma derive_const (c t : R) : is_derive (fun _ : R => c) t 0.
Proof. apply (is_derive_const (V := R_NormedModule)). Qed.
Lemma derive_scal (a : R -> R) c t a' : is_derive a t a' -> is_derive (fun t => c * a t) t (c * a').
Proof. intros A. apply (is_derive_scal a t c a' A). Qed.
Lemma derive_comp (f g : R -> R) t f' g' :
  is_derive f (g t) f' -> is_derive g t g' -> is_derive (fun t => f (g t)) t (f' * g').
Proof. intros F G. rewrite Rmult_comm. exact (is_derive_comp f g t f' g' F G). Qed.
Lemma derive_exp (a : R -> R) t a' : is_derive a t a' -> is_derive (fun t => exp (a t)) t (exp (a t) * a').
Proof. intros A. apply (derive_comp exp a); [apply is_derive_exp|exact A]. Qed.
Lemma derive_ln (g : R -> R) t d : 0 < g t -> is_derive g t d -> is_derive (fun t => ln (g t)) t (d / g t).
Proof.
  intros P D. assert (U : Derive (fun x => g x) t = d) by exact (is_derive_unique g t d D).
  auto_derive; [split; [eexists; exact D|now split]|]. rewrite U. field. now apply Rgt_not_eq.
Qed.
